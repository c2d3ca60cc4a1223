#include "tests/kube/support/bound_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace cbt::test {
namespace {

// The thread that forks. It is not joined: it ends with the process, and not before. A copy of the
// process that fork() made has no thread but one, and starts another.
class Forker {
 public:
  static Forker& Get() {
    static std::mutex mutex;
    static Forker* forker = nullptr;
    static pid_t owner = 0;
    std::lock_guard lock(mutex);
    if (owner != getpid()) {
      forker = new Forker;
      owner = getpid();
    }
    return *forker;
  }

  pid_t Run(std::function<pid_t()> work) {
    std::lock_guard one_at_a_time(callers_);
    std::packaged_task<pid_t()> task(std::move(work));
    std::future<pid_t> result = task.get_future();
    {
      std::lock_guard lock(mutex_);
      task_ = &task;
    }
    changed_.notify_all();
    return result.get();
  }

 private:
  Forker() {
    std::thread([this] { Loop(); }).detach();
  }

  [[noreturn]] void Loop() {
    for (;;) {
      std::packaged_task<pid_t()>* task = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return task_ != nullptr; });
        task = std::exchange(task_, nullptr);
      }
      (*task)();
    }
  }

  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::packaged_task<pid_t()>* task_ = nullptr;
};

// In the child: nothing that allocates or locks.
[[noreturn]] void BecomeProgram(char* const* arguments, int log, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 ||
      dup2(log, 2) < 0) {
    _exit(126);
  }
  // The parent may have died before the kernel was asked.
  if (getppid() != parent) _exit(126);
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

BoundProcess::BoundProcess(std::vector<std::string> arguments, const std::string& log) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("can't open " + log);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_ = Forker::Get().Run([&] {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) BecomeProgram(pointers.data(), file, parent);
    return child;
  });
  close(file);
  if (pid_ < 0) throw std::runtime_error("can't start " + arguments.front());
}

BoundProcess::~BoundProcess() { End(SIGKILL); }

bool BoundProcess::Reaped(bool wait) {
  if (ended_) return true;
  int status = 0;
  pid_t got = 0;
  do {
    got = waitpid(pid_, &status, wait ? 0 : WNOHANG);
  } while (got < 0 && errno == EINTR);
  ended_ = got != 0;
  return ended_;
}

bool BoundProcess::running() { return !Reaped(false); }

void BoundProcess::Signal(int signal) const {
  if (!ended_) kill(pid_, signal);
}

void BoundProcess::End(int signal, std::chrono::milliseconds wait_limit) {
  if (Reaped(false)) return;
  kill(pid_, signal);
  kill(pid_, SIGCONT);
  const auto until = std::chrono::steady_clock::now() + wait_limit;
  while (signal != SIGKILL && !Reaped(false)) {
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (ended_) return;
  kill(pid_, SIGKILL);
  Reaped(true);
}

}  // namespace cbt::test
