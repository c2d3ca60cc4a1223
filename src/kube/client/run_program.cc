#include "kube/client/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/text.h"

extern "C" char** environ;  // NOLINT(readability-redundant-declaration): not in every unistd.h

namespace cbt::kube {
namespace {

using Clock = std::chrono::steady_clock;

// Where the kernel has no descriptors of processes, and to look for `stop`.
constexpr std::chrono::milliseconds kPoll{20};

class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t* actions() noexcept { return &actions_; }
  posix_spawnattr_t* attributes() noexcept { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// "NAME=value" of this process with the program's own in place.
std::vector<std::string> EnvironmentOf(const Program& program) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(program.env.begin(), program.env.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!replaced) variables.emplace_back(text);
  }
  for (const auto& [name, value] : program.env) variables.push_back(name + "=" + value);
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A child that is killed and reaped at the end of the scope if it still runs.
class Child {
 public:
  Child(pid_t pid, bool own_group) : pid_(pid), own_group_(own_group) {
#ifdef SYS_pidfd_open
    handle_ = OwnedDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#endif
  }
  ~Child() {
    if (reaped_) return;
    ::kill(own_group_ ? -pid_ : pid_, SIGKILL);
    Retry([&] { return ::waitpid(pid_, nullptr, 0); });
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Readable once it has exited; -1 if the kernel has none.
  int handle() const noexcept { return handle_.number(); }

  // Its status as of waitpid() if it has exited.
  std::optional<int> TryReap() noexcept {
    int status = 0;
    const pid_t result = Retry([&] { return ::waitpid(pid_, &status, WNOHANG); });
    if (result == 0) return std::nullopt;
    reaped_ = true;
    // Programs that ignore SIGCHLD never learn how a child ended.
    return result == pid_ ? status : 0;
  }

 private:
  const pid_t pid_;
  const bool own_group_;
  bool reaped_ = false;
  OwnedDescriptor handle_;
};

// Appends what is there to read. False at the end of the output.
absl::StatusOr<bool> ReadSome(int descriptor, const Program& program, WipedBuffer& output) {
  char chunk[4096];
  for (;;) {
    const ssize_t count = Retry([&] { return ::read(descriptor, chunk, sizeof(chunk)); });
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count <= 0) return false;
    output.Append({chunk, static_cast<size_t>(count)});
    std::fill_n(chunk, sizeof(chunk), '\0');
    asm volatile("" : : "r"(chunk) : "memory");
    if (output.size() > program.max_output) {
      return absl::ResourceExhaustedError(
          absl::StrCat(program.command, ": printed more than ", program.max_output, " bytes"));
    }
  }
}

absl::StatusOr<WipedBuffer> Collect(const Program& program, int output, Child& child,
                                    const std::stop_token& stop) {
  const Clock::time_point deadline = Clock::now() + program.timeout;
  WipedBuffer text;
  bool open = true;
  std::optional<int> status;
  while (!status) {
    if (stop.stop_requested()) return absl::CancelledError(program.command + ": cancelled");
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return absl::DeadlineExceededError(
          absl::StrCat(program.command, ": still running after ", program.timeout.count(), " ms"));
    }
    pollfd waits[] = {{.fd = open ? output : -1, .events = POLLIN, .revents = 0},
                      {.fd = child.handle(), .events = POLLIN, .revents = 0}};
    ::poll(waits, 2, static_cast<int>(std::min(left, kPoll).count()));
    // Asked first: what it had printed when it exited is then there to read.
    status = child.TryReap();
    if (open) {
      const absl::StatusOr<bool> more = ReadSome(output, program, text);
      if (!more.ok()) return more.status();
      open = *more;
    }
  }
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
    return absl::UnavailableError(
        WIFEXITED(*status)
            ? absl::StrCat(program.command, ": failed with exit status ", WEXITSTATUS(*status))
            : absl::StrCat(program.command, ": killed by signal ", WTERMSIG(*status)));
  }
  return text;
}

}  // namespace

absl::StatusOr<WipedBuffer> RunProgram(const Program& program, const std::stop_token& stop) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::UnavailableError(absl::StrCat(program.command, ": ", ErrnoText(errno)));
  }
  const OwnedDescriptor output(ends[0]);
  OwnedDescriptor input(ends[1]);
  // The program's end blocks, as programs expect.
  ::fcntl(input.number(), F_SETFL, 0);

  std::vector<std::string> words = {program.command};
  words.insert(words.end(), program.args.begin(), program.args.end());
  std::vector<std::string> variables = EnvironmentOf(program);
  const std::vector<char*> argv = Pointers(words);
  const std::vector<char*> envp = Pointers(variables);

  SpawnSettings settings;
  posix_spawn_file_actions_adddup2(settings.actions(), input.number(), STDOUT_FILENO);
  int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (!program.interactive) {
    posix_spawn_file_actions_addopen(settings.actions(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    flags |= POSIX_SPAWN_SETPGROUP;
  }
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(settings.attributes(), &none);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGINT);
  sigaddset(&defaults, SIGTERM);
  posix_spawnattr_setsigdefault(settings.attributes(), &defaults);
  posix_spawnattr_setflags(settings.attributes(), static_cast<short>(flags));

  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, program.command.c_str(), settings.actions(),
                                   settings.attributes(), argv.data(), envp.data());
  input.Close();
  if (error != 0) {
    const std::string text = absl::StrCat(program.command, ": ", ErrnoText(error));
    return error == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
  }
  Child child(pid, !program.interactive);
  return Collect(program, output.number(), child, stop);
}

}  // namespace cbt::kube
