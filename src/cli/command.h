// The subcommands. Each lives in its own file and adds itself to the parser here.
#ifndef CBT_CLI_COMMAND_H_
#define CBT_CLI_COMMAND_H_

#include <functional>
#include <span>
#include <string>

#include "CLI/CLI.hpp"

namespace cbt::cli {

// The work of the chosen subcommand; returns the exit status.
using Command = std::function<int()>;

// Each adds one subcommand to `app`; parsing stores its work in `command`. Throws CLI::ParseError
// for wrong usage. Both must outlive the parsing.
void AddAllocated(CLI::App& app, Command& command);
void AddApply(CLI::App& app, Command& command);
void AddChain(CLI::App& app, Command& command);
void AddConform(CLI::App& app, Command& command);
void AddDelta(CLI::App& app, Command& command);
void AddDescribe(CLI::App& app, Command& command);
void AddDriver(CLI::App& app, Command& command);
void AddList(CLI::App& app, Command& command);
void AddMap(CLI::App& app, Command& command);
void AddRelay(CLI::App& app, Command& command);
void AddServe(CLI::App& app, Command& command);
void AddSessionManager(CLI::App& app, Command& command);
void AddSidecar(CLI::App& app, Command& command);
void AddToken(CLI::App& app, Command& command);
void AddVerify(CLI::App& app, Command& command);

// `cbt sidecar` with these arguments, which follow other rules than those of other commands (see
// cli/options/go_flags.h). Returns the exit status.
int RunSidecarCommand(std::span<const std::string> arguments);

// The whole program.
int Run(int argc, char** argv);

}  // namespace cbt::cli

#endif  // CBT_CLI_COMMAND_H_
