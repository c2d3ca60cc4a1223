// `cbtctl describe`, hidden: the parser's own description of every subcommand and option as JSON.
// Man pages and completions are made from it (cmake/describe.py), so that they can't differ from
// what is parsed.

#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cbt/version.h"
#include "programs/cbt/command.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

// Appends `"key":value` and a comma.
void AppendText(std::string& text, std::string_view key, std::string_view value) {
  text += JsonString(key) + ":" + JsonString(value) + ",";
}

void AppendFact(std::string& text, std::string_view key, bool value) {
  text += JsonString(key) + ":" + (value ? "true" : "false") + ",";
}

void EndList(std::string& text, char close) {
  if (text.back() == ',') text.pop_back();
  text += close;
}

void DescribeOption(CLI::Option& option, std::string& text) {
  text += "{\"names\":[";
  for (const std::string& name : option.get_snames()) text += JsonString("-" + name) + ",";
  for (const std::string& name : option.get_lnames()) text += JsonString("--" + name) + ",";
  EndList(text, ']');
  text += ",";
  const bool positional = !option.nonpositional();
  if (positional) AppendText(text, "positional", option.get_name(true));
  const bool flag = option.get_items_expected_max() == 0;
  AppendFact(text, "flag", flag);
  AppendFact(text, "required", option.get_required());
  AppendFact(text, "repeated", option.get_items_expected_max() > 1);
  AppendText(text, "type", flag || positional ? "" : option.get_type_name());
  AppendText(text, "default", option.get_default_str());
  AppendText(text, "description", option.get_description());
  text += "\"choices\":[";
  for (const std::string& choice : OfferedBy(option)) text += JsonString(choice) + ",";
  EndList(text, ']');
  EndList(text, '}');
}

void DescribeApp(CLI::App& app, std::string& text) {
  text += "{";
  AppendText(text, "name", app.get_name());
  AppendText(text, "description", app.get_description());
  AppendText(text, "footer", app.get_footer());
  text += "\"options\":[";
  const auto shown = [](const auto* part) { return !part->get_group().empty(); };
  for (CLI::Option* option : app.get_options(shown)) {
    DescribeOption(*option, text);
    text += ",";
  }
  EndList(text, ']');
  text += ",\"subcommands\":[";
  for (CLI::App* sub : app.get_subcommands(shown)) {
    DescribeApp(*sub, text);
    text += ",";
  }
  EndList(text, ']');
  text += "}";
}

}  // namespace

void AddDescribe(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("describe", "Print every subcommand and option as JSON");
  sub->group("");
  sub->callback([&app, &command] {
    command = [&app] {
      std::string text = "{";
      AppendText(text, "version", kVersion);
      text += "\"command\":";
      DescribeApp(app, text);
      text += "}\n";
      Output output(STDOUT_FILENO, "stdout");
      output.Append(text);
      return Report("describe", output.Close());
    };
  });
}

}  // namespace cbt::cli
