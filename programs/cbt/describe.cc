// `cbtctl describe`, hidden: the parser's own description of every subcommand and option as JSON.
// Man pages and completions are made from it (cmake/describe.py), so that they can't differ from
// what is parsed.

#include <unistd.h>

#include <string>

#include "base/json_builder.h"
#include "cbt/version.h"
#include "programs/cbt/command.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

void DescribeOption(CLI::Option& option, JsonBuilder& json) {
  json.BeginObject().Key("names").BeginArray();
  for (const std::string& name : option.get_snames()) json.Value("-" + name);
  for (const std::string& name : option.get_lnames()) json.Value("--" + name);
  json.EndArray();
  const bool positional = !option.nonpositional();
  if (positional) json.Field("positional", option.get_name(true));
  const bool flag = option.get_items_expected_max() == 0;
  json.Field("flag", flag).Field("required", option.get_required());
  json.Field("repeated", option.get_items_expected_max() > 1);
  json.Field("type", flag || positional ? "" : option.get_type_name());
  json.Field("default", option.get_default_str()).Field("description", option.get_description());
  json.Key("choices").BeginArray();
  for (const std::string& choice : OfferedBy(option)) json.Value(choice);
  json.EndArray().EndObject();
}

void DescribeApp(CLI::App& app, JsonBuilder& json) {
  json.BeginObject().Field("name", app.get_name()).Field("description", app.get_description());
  json.Field("footer", app.get_footer()).Key("options").BeginArray();
  const auto shown = [](const auto* part) { return !part->get_group().empty(); };
  for (CLI::Option* option : app.get_options(shown)) DescribeOption(*option, json);
  json.EndArray().Key("subcommands").BeginArray();
  for (CLI::App* sub : app.get_subcommands(shown)) DescribeApp(*sub, json);
  json.EndArray().EndObject();
}

}  // namespace

void AddDescribe(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("describe", "Print every subcommand and option as JSON");
  sub->group("");
  sub->callback([&app, &command] {
    command = [&app] {
      JsonBuilder json;
      DescribeApp(app, json.BeginObject().Field("version", kVersion).Key("command"));
      Output output(STDOUT_FILENO, "stdout");
      output.Append(json.EndObject().Take() + "\n");
      return Report("describe", output.Close());
    };
  });
}

}  // namespace cbt::cli
