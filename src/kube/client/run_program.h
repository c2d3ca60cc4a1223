// Runs a program and collects what it prints.
#ifndef CBT_KUBE_CLIENT_RUN_PROGRAM_H_
#define CBT_KUBE_CLIENT_RUN_PROGRAM_H_

#include <chrono>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kube/object/wiped_buffer.h"

namespace cbt::kube {

struct Program {
  std::string command = {};  // looked up in PATH if it has no slash
  std::vector<std::string> args = {};
  // Added to this process's environment, in place of variables of the same name.
  std::vector<std::pair<std::string, std::string>> env = {};
  // Leaves standard input as it is, and the terminal to the program; otherwise there is nothing to
  // read, and the program is killed with all that it started.
  bool interactive = false;
  std::chrono::milliseconds timeout{0};
  size_t max_output = 0;  // bytes
};

// Its standard output, once it has exited with status 0. Blocks; `stop` ends it with CANCELLED.
// Errors name the program, and never hold its output: NOT_FOUND if there is no such program,
// UNAVAILABLE if it fails or can't be started, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED for too much
// output.
absl::StatusOr<WipedBuffer> RunProgram(const Program& program, const std::stop_token& stop);

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_RUN_PROGRAM_H_
