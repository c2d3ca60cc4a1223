// Programs that end with the test program, however that ends.
#ifndef CBT_TESTS_KUBE_SUPPORT_BOUND_PROCESS_H_
#define CBT_TESTS_KUBE_SUPPORT_BOUND_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace cbt::test {

// A program that runs beside the test. The destructor ends it; so does the kernel when this process
// is killed (PR_SET_PDEATHSIG). Can be started from any thread: the kernel looks at the thread that
// forked, which is therefore one that lives as long as this process.
class BoundProcess {
 public:
  // Runs the program of the path `arguments[0]`; its output is appended to the file `log`. Throws
  // std::runtime_error if it can't be started.
  BoundProcess(std::vector<std::string> arguments, const std::string& log);
  ~BoundProcess();
  BoundProcess(const BoundProcess&) = delete;
  BoundProcess& operator=(const BoundProcess&) = delete;

  bool running();
  pid_t pid() const { return pid_; }

  // Sends `signal` and waits for the end; after `wait_limit` SIGKILL follows.
  void End(int signal, std::chrono::milliseconds wait_limit = std::chrono::seconds(20));
  // Sends a signal, SIGSTOP for example, and does not wait.
  void Signal(int signal) const;

 private:
  bool Reaped(bool wait);

  pid_t pid_ = -1;
  bool ended_ = false;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_KUBE_SUPPORT_BOUND_PROCESS_H_
