// Programs that tests run to completion, or for as long as the test runs.
#ifndef CBT_TESTS_SUPPORT_CHILD_PROCESS_H_
#define CBT_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

extern char** environ;

namespace cbt::test {

// The path of `program`, from PATH and the directories of administrators' tools; empty if it is
// missing.
inline std::string FindProgram(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::string directories = std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin";
  for (size_t begin = 0; begin <= directories.size();) {
    const size_t end = std::min(directories.find(':', begin), directories.size());
    const std::string candidate = directories.substr(begin, end - begin) + "/" + program;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return "";
}

// A program that is killed and reaped when this object is destroyed.
class ChildProcess {
 public:
  // Its output goes to the file `output`, if any.
  explicit ChildProcess(std::vector<std::string> arguments,
                        const std::string& output = "/dev/null") {
    const std::string program = FindProgram(arguments.front());
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (program.empty() ||
        posix_spawn(&process_, program.c_str(), &actions, nullptr, pointers.data(), environ) != 0) {
      process_ = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
  }
  ~ChildProcess() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    Wait();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Returns false if it could not be started or has exited.
  bool running() {
    if (process_ <= 0) return false;
    if (waitpid(process_, &status_, WNOHANG) == 0) return true;
    process_ = -1;
    return false;
  }

  void Signal(int number) const {
    if (process_ > 0) kill(process_, number);
  }

  // Waits for its exit code; -1 if a signal ended it or it did not start.
  int Wait() {
    if (process_ <= 0) return -1;
    while (waitpid(process_, &status_, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }

 private:
  pid_t process_ = -1;
  int status_ = 0;
};

// Runs a program to completion. Returns its exit code.
inline int Run(std::vector<std::string> arguments, const std::string& output = "/dev/null") {
  return ChildProcess(std::move(arguments), output).Wait();
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_CHILD_PROCESS_H_
