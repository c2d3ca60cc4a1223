// `cbt chain show`: pictures of a volume's history.
#ifndef CBT_CLI_COMMANDS_CHAIN_SHOW_H_
#define CBT_CLI_COMMANDS_CHAIN_SHOW_H_

#include "cli/command.h"

namespace cbt::cli {

// Adds the subcommand to `cbt chain`; as the functions of command.h.
void AddChainShow(CLI::App& chain, Command& command);

}  // namespace cbt::cli

#endif  // CBT_CLI_COMMANDS_CHAIN_SHOW_H_
