// The subcommands. Each lives in its own file and adds itself to the parser here.
#ifndef CBT_PROGRAMS_CBT_COMMAND_H_
#define CBT_PROGRAMS_CBT_COMMAND_H_

#include <functional>
#include <span>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace cbt::cli {

// The work of the chosen subcommand; returns the exit status.
using Command = std::function<int()>;

// `cbt driver` and `cbt volume-host` are two programs: `cbt` knows their options and starts
// `cbt-driver`, which links gRPC and the generated classes of CSI. So every other command starts
// without them.
struct DriverArguments;
struct VolumeHostArguments;
struct DriverPrograms {
  std::function<absl::Status(const DriverArguments&)> driver;
  std::function<absl::Status(const VolumeHostArguments&)> volume_host;
};

// Each runs until a signal stops it. Only `cbt-driver` has them.
absl::Status RunDriver(const DriverArguments& arguments);
absl::Status RunVolumeHost(const VolumeHostArguments& arguments);

// Becomes `cbt-driver`, which is beside this program, with the same arguments (argv). Returns only
// if it can't be started: FAILED_PRECONDITION if it is not there.
absl::Status StartDriverProgram(char** arguments);

// Each adds one subcommand to `app`; parsing stores its work in `command`. Throws CLI::ParseError
// for wrong usage. Both must outlive the parsing.
void AddAggregatedApi(CLI::App& app, Command& command);
void AddAllocated(CLI::App& app, Command& command);
void AddApply(CLI::App& app, Command& command);
void AddChain(CLI::App& app, Command& command);
void AddConform(CLI::App& app, Command& command);
void AddDelta(CLI::App& app, Command& command);
void AddDescribe(CLI::App& app, Command& command);
void AddDriver(CLI::App& app, Command& command, const DriverPrograms& programs);
void AddHttpSidecar(CLI::App& app, Command& command);
void AddList(CLI::App& app, Command& command);
void AddMap(CLI::App& app, Command& command);
void AddRelay(CLI::App& app, Command& command);
void AddServe(CLI::App& app, Command& command);
void AddSessionManager(CLI::App& app, Command& command);
void AddSidecar(CLI::App& app, Command& command);
void AddToken(CLI::App& app, Command& command);
void AddVerify(CLI::App& app, Command& command);
void AddVolumeHost(CLI::App& app, Command& command, const DriverPrograms& programs);

// `cbt sidecar` with these arguments, which follow other rules than those of other commands (see
// programs/cbt/options/go_flags.h). Returns the exit status.
int RunSidecarCommand(std::span<const std::string> arguments);

// The whole program.
int Run(int argc, char** argv, const DriverPrograms& programs);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMAND_H_
