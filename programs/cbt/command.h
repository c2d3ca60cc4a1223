// A program and its subcommands, and those of cbtctl. Each subcommand lives in its own file and adds
// itself to the parser here.
#ifndef CBT_PROGRAMS_CBT_COMMAND_H_
#define CBT_PROGRAMS_CBT_COMMAND_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace cbt::cli {

// The work of the chosen subcommand; returns the exit status.
using Command = std::function<int()>;

// Adds one subcommand to `app`; parsing stores its work in `command`. Throws CLI::ParseError for
// wrong usage. Both must outlive the parsing.
using AddCommand = void (*)(CLI::App& app, Command& command);

// A subcommand of another program, for those who look for it in this one.
struct CommandElsewhere {
  const char* name;
  const char* program;
};

// Subcommands that stand under one heading in the help.
struct CommandGroup {
  const char* heading;
  std::vector<AddCommand> commands;
};

// What a program is made of. There are several, so that each starts without the libraries that only
// the others need.
struct Program {
  const char* name;
  const char* description;
  std::vector<CommandGroup> commands = {};
  std::vector<CommandElsewhere> elsewhere = {};
  // Further lines of --version; null: none.
  std::function<std::vector<std::string>()> version_lines = {};
  // Runs a command whose arguments follow rules of their own, and returns the exit status; nothing
  // for the others. Null: there is no such command.
  std::function<std::optional<int>(int argc, char** argv)> run_unparsed = {};
};

// `cbtctl`.
void AddAllocated(CLI::App& app, Command& command);
void AddApply(CLI::App& app, Command& command);
void AddBackup(CLI::App& app, Command& command);
void AddChain(CLI::App& app, Command& command);
void AddConform(CLI::App& app, Command& command);
void AddDelta(CLI::App& app, Command& command);
void AddExport(CLI::App& app, Command& command);
void AddList(CLI::App& app, Command& command);
void AddMap(CLI::App& app, Command& command);
void AddRelay(CLI::App& app, Command& command);
void AddServe(CLI::App& app, Command& command);
void AddToken(CLI::App& app, Command& command);
void AddVerify(CLI::App& app, Command& command);

// Every program: `describe`, and all around the subcommands. Returns the exit status.
void AddDescribe(CLI::App& app, Command& command);
int Run(int argc, char** argv, const Program& program);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMAND_H_
