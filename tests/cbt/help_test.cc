// Suggestions for mistyped names, and the options in help texts.
#include "programs/cbt/help.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cbt::cli {
namespace help_test {

TEST(NearestTest, FindsSlipsAndAbbreviations) {
  const std::vector<std::string> commands = {"delta", "allocated", "apply", "map", "list"};
  EXPECT_EQ(Nearest("dleta", commands), "delta");
  EXPECT_EQ(Nearest("lst", commands), "list");
  EXPECT_EQ(Nearest("allocate", commands), "allocated");
  EXPECT_EQ(Nearest("alloc", commands), "allocated");
  EXPECT_EQ(Nearest("frobnicate", commands), "");
  EXPECT_EQ(Nearest("x", commands), "");
  EXPECT_EQ(Nearest("", commands), "");
  const std::vector<std::string> options = {"--from", "--format",    "--capacity",
                                            "--base", "--base-name", "--base-capacity"};
  EXPECT_EQ(Nearest("--form", options), "--from");
  EXPECT_EQ(Nearest("--fromat", options), "--format");
  EXPECT_EQ(Nearest("--cap", options), "--capacity");
  // Several options begin like this.
  EXPECT_EQ(Nearest("--base-", options), "--base");
  EXPECT_EQ(Nearest("--blubb", options), "");
}

TEST(UnknownArgumentTest, SaysWhatWasNotTaken) {
  CLI::App app("", "test");
  app.add_subcommand("list", "");
  CLI::App& list = *app.get_subcommand("list");
  list.add_option("--snapshot");
  EXPECT_EQ(UnknownArgument(app, "lsit"), "'lsit' is unknown; did you mean 'list'?");
  EXPECT_EQ(UnknownArgument(list, "--snapshto=secret"),
            "'--snapshto' is not an option; did you mean '--snapshot'?");
  EXPECT_EQ(UnknownArgument(list, "--x"), "'--x' is not an option");
  EXPECT_EQ(UnknownArgument(list, "more"), "'more' is one argument too many");
}

TEST(HelpFormatterTest, ShowsHowOftenArgumentsMayBeGiven) {
  CLI::App app("", "test");
  std::vector<std::string> some;
  std::string one;
  app.add_option("IMAGE", some)->required()->expected(1, 2);
  CLI::Option* const a = app.add_option("--one", one)->type_name("N");
  a->excludes(app.add_option("--other"));
  app.formatter(std::make_shared<HelpFormatter>());
  const std::string help = app.help();
  EXPECT_NE(help.find("test [OPTIONS] IMAGE [IMAGE]\n"), std::string::npos) << help;
  EXPECT_EQ(help.find("Excludes"), std::string::npos) << help;
  EXPECT_NE(help.find("--one N"), std::string::npos) << help;
}

}  // namespace help_test
}  // namespace cbt::cli
