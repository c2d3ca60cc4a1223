// The program around the subcommands: parsing, usage errors, help and version.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "programs/cbt/command.h"
#include "programs/cbt/help.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/status.h"
#include "programs/cbt/support/terminal.h"

namespace cbt::cli {
namespace {

// Occupies closed standard descriptors, or a file opened later would become stdout and receive our
// output. Writing to such a stdout fails, as it should.
void TakeStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest free number is this one.
    [[maybe_unused]] const int taken =
        open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int Print(std::string_view text) {
  Output output(STDOUT_FILENO, "stdout");
  output.Append(text);
  return Report("", output.Close());
}

// The subcommand being parsed, preceded by its parents.
std::string ChosenName(const CLI::App& app) {
  std::string name;
  for (std::vector<CLI::App*> chosen = app.get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands()) {
    if (!name.empty()) name += " ";
    name += chosen.front()->get_name();
  }
  return name;
}

const CLI::App& Deepest(const CLI::App& app) {
  const CLI::App* deepest = &app;
  while (!deepest->get_subcommands().empty()) deepest = deepest->get_subcommands().front();
  return *deepest;
}

// For every subcommand that does something.
void AddVerbosityToAll(CLI::App& app) {
  const std::vector<CLI::App*> subcommands = app.get_subcommands({});
  for (CLI::App* const sub : subcommands) AddVerbosityToAll(*sub);
  if (subcommands.empty()) AddVerbosityOptions(app);
}

void ReplaceFirst(std::string& text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

int UsageFailure(const CLI::App& app, const CLI::ParseError& error) {
  const std::string name = ChosenName(app);
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) {
    // The message of a value error is complete.
    PrintLine(name, error.what());
    return kExitUsage;
  }
  std::string why = error.what();
  // The parser's words for an argument that may be given several times.
  ReplaceFirst(why, ": At Most ", ": at most ");
  ReplaceFirst(why, " required but received ", " expected, got ");
  const CLI::App& deepest = Deepest(app);
  const std::vector<std::string> rest = app.remaining(true);
  const bool lacks_subcommand = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr &&
                                !deepest.get_subcommands({}).empty();
  // The parser would say only that a subcommand, or another option, is missing.
  if (!rest.empty() && (lacks_subcommand || rest.front().starts_with('-') ||
                        dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    why = UnknownArgument(deepest, rest.front());
  }
  const std::string help = app.get_name() + (name.empty() ? "" : " " + name) + " --help";
  PrintLine(name, "usage: " + why + " (see " + help + ")");
  return kExitUsage;
}

// What the parser calls subcommands without a heading.
constexpr std::string_view kDefaultHeading = "Subcommands";

// For `cbtctl help X ...`: the first word that names no subcommand, and where; nothing if all do.
std::optional<std::string> UnknownTopic(const CLI::App& app, std::span<char* const> words) {
  const CLI::App* deepest = &app;
  for (const std::string word : words) {
    if (word.starts_with('-')) return std::nullopt;
    const std::vector<const CLI::App*> subcommands = deepest->get_subcommands({});
    const auto named = std::find_if(subcommands.begin(), subcommands.end(),
                                    [&](const CLI::App* sub) { return sub->get_name() == word; });
    if (named == subcommands.end()) return UnknownArgument(*deepest, word);
    deepest = *named;
  }
  return std::nullopt;
}

std::string HelpOf(const CLI::App& app) {
  const std::optional<size_t> columns = TerminalColumns(STDOUT_FILENO);
  return columns.has_value() ? WrappedHelp(app.help(), *columns) : app.help();
}

// Last first, as the parser takes them. `cbtctl help list` is `cbtctl list --help`.
std::vector<std::string> ArgumentsOf(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

// The subcommand that the arguments begin with, if another program has it.
const CommandElsewhere* FindElsewhere(const Program& program, int argc, char** argv) {
  int first = 1;
  if (first < argc && std::string_view(argv[first]) == "help") ++first;
  if (first >= argc) return nullptr;
  for (const CommandElsewhere& command : program.elsewhere) {
    if (std::string_view(argv[first]) == command.name) return &command;
  }
  return nullptr;
}

int ParseAndRun(int argc, char** argv, const Program& program) {
  if (program.run_unparsed) {
    if (const std::optional<int> status = program.run_unparsed(argc, argv)) return *status;
  }
  if (const CommandElsewhere* const command = FindElsewhere(program, argc, argv)) {
    PrintLine("", std::string("usage: '") + command->name + "' is a command of another program: " +
                      command->program + " " + command->name);
    return kExitUsage;
  }
  CLI::App app(program.description, program.name);
  app.set_version_flag(
      "-V,--version",
      [&program] {
        return VersionText(program.version_lines ? program.version_lines()
                                                 : std::vector<std::string>());
      },
      "Print the version and the kernels in use");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(
      "Run a subcommand with --help for details. Exit status: 0 success, 1 the answer is \"no\",\n"
      "2 wrong usage or bad input, 3 input/output or network failure.");
  Command command;
  for (const CommandGroup& group : program.commands) {
    for (const AddCommand add : group.commands) add(app, command);
    for (CLI::App* const sub : app.get_subcommands({})) {
      if (sub->get_group() == kDefaultHeading) sub->group(group.heading);
    }
  }
  AddVerbosityToAll(app);
  AddDescribe(app, command);
  if (argc > 2 && std::string_view(argv[1]) == "help") {
    if (const auto why = UnknownTopic(app, std::span(argv, static_cast<size_t>(argc)).subspan(2))) {
      PrintLine("", "usage: " + *why + " (see " + app.get_name() + " --help)");
      return kExitUsage;
    }
  }
  try {
    app.parse(ArgumentsOf(argc, argv));
  } catch (const CLI::CallForHelp&) {
    return Print(HelpOf(app));
  } catch (const CLI::CallForVersion& version) {
    const absl::Status simd = CheckSimdRequest();
    return simd.ok() ? Print(version.what()) : Report("", simd);
  } catch (const CLI::ParseError& error) {
    return UsageFailure(app, error);
  }
  if (const absl::Status simd = CheckSimdRequest(); !simd.ok()) {
    return Report(ChosenName(app), simd);
  }
  return command();
}

}  // namespace

int Run(int argc, char** argv, const Program& program) {
  SetProgramName(program.name);
  TakeStandardDescriptors();
  // Failed writes are errors with a message, not a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // Keeps gRPC's log out of our one-line errors unless the user asks for it.
  setenv("GRPC_VERBOSITY", "NONE", 0);  // NOLINT(concurrency-mt-unsafe): the only thread
  try {
    return ParseAndRun(argc, argv, program);
  } catch (const std::exception& error) {
    PrintLine("", std::string("internal error: ") + error.what());
    return kExitFailure;
  }
}

}  // namespace cbt::cli
