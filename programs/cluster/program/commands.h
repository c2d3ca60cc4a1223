// The subcommands of `cbt-cluster`.
#ifndef CBT_PROGRAMS_CLUSTER_PROGRAM_COMMANDS_H_
#define CBT_PROGRAMS_CLUSTER_PROGRAM_COMMANDS_H_

#include <span>
#include <string>

#include "programs/cbt/command.h"

namespace cbt::cli {

void AddAggregatedApi(CLI::App& app, Command& command);
void AddCosiController(CLI::App& app, Command& command);
void AddCosiDriver(CLI::App& app, Command& command);
void AddCosiNode(CLI::App& app, Command& command);
void AddCosiSidecar(CLI::App& app, Command& command);
void AddHttpSidecar(CLI::App& app, Command& command);
void AddSessionManager(CLI::App& app, Command& command);
void AddSidecar(CLI::App& app, Command& command);
// The sidecar, with arguments that follow other rules than those of other commands (see
// programs/cbt/options/go_flags.h). Returns the exit status.
int RunSidecarCommand(std::span<const std::string> arguments);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CLUSTER_PROGRAM_COMMANDS_H_
