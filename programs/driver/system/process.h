// What the files of /proc and /sys say, and waiting for what they show.
#ifndef CBT_PROGRAMS_DRIVER_SYSTEM_PROCESS_H_
#define CBT_PROGRAMS_DRIVER_SYSTEM_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace cbt::driver {

// Empty if there is no such file, or it can't be read.
std::string FirstLine(const std::string& path);
// The command line of a process; empty if it has ended.
std::vector<std::string> CommandOf(pid_t pid);

// True if a process listens at a Unix socket, however busy it is. Only a socket that is not there,
// or refuses, has none. Errors: as FileError() where that can't be known.
absl::StatusOr<bool> IsListening(const std::string& socket);

// Polls; false after the time.
template <typename Condition>
bool WaitFor(Condition condition, std::chrono::seconds time) {
  constexpr std::chrono::milliseconds kPause{20};
  const auto latest = std::chrono::steady_clock::now() + time;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > latest) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_SYSTEM_PROCESS_H_
