// `cbt chain show`: pictures of a volume's history.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_CHAIN_SHOW_H_
#define CBT_PROGRAMS_CBT_COMMANDS_CHAIN_SHOW_H_

#include "programs/cbt/command.h"

namespace cbt::cli {

// Adds the subcommand to `cbt chain`; as the functions of command.h.
void AddChainShow(CLI::App& chain, Command& command);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_CHAIN_SHOW_H_
