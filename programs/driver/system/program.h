// Programs of the system that the driver runs: nbdkit, losetup, mkfs.
#ifndef CBT_PROGRAMS_DRIVER_SYSTEM_PROGRAM_H_
#define CBT_PROGRAMS_DRIVER_SYSTEM_PROGRAM_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace cbt::driver {

struct ProgramResult {
  int exit_status = 0;
  std::string output;  // of stdout and stderr, the first 64 KiB
  // Both, for what processes that it has left in the background write later, see Said().
  OwnedDescriptor file = {};
};

// The first lines and the last one of what has been written so far, on one line.
std::string Said(const OwnedDescriptor& file);

inline constexpr std::chrono::seconds kProgramTime{60};

// Runs `command` (the program, found along PATH, and its arguments) without a shell and without
// input, and waits for it; kills it after `limit`. Processes that it leaves in the background keep
// running. Blocks; call from any thread.
// Errors: FAILED_PRECONDITION if the program is not installed, DEADLINE_EXCEEDED, UNAVAILABLE if
//         the system refuses, INTERNAL if a signal killed it.
absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& command,
                                         std::chrono::milliseconds limit = kProgramTime);

// As above; another exit status than 0 is INTERNAL, with the first lines and the last line of the
// output. Returns the output without the blanks at its end.
absl::StatusOr<std::string> CallProgram(const std::vector<std::string>& command,
                                        std::chrono::milliseconds limit = kProgramTime);

// True if PATH has the program.
bool IsInstalled(const std::string& program);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_SYSTEM_PROGRAM_H_
