// The subcommands of `cbt-driver`.
#ifndef CBT_PROGRAMS_DRIVER_PROGRAM_COMMANDS_H_
#define CBT_PROGRAMS_DRIVER_PROGRAM_COMMANDS_H_

#include "absl/status/status.h"
#include "programs/cbt/command.h"

namespace cbt::cli {

void AddDriver(CLI::App& app, Command& command);
void AddVolumeHost(CLI::App& app, Command& command);
// Each runs until a signal stops it.
struct DriverArguments;
absl::Status RunDriver(const DriverArguments& arguments);
struct VolumeHostArguments;
absl::Status RunVolumeHost(const VolumeHostArguments& arguments);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_DRIVER_PROGRAM_COMMANDS_H_
