#include "programs/driver/system/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/text.h"

namespace cbt::driver {
namespace {

constexpr size_t kMaxOutput = 64 << 10;

// Attributes and file actions of a child, released at the end of the scope.
class Spawn {
 public:
  explicit Spawn(int output) {
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_init(&actions_);
    // The driver blocks and ignores signals that its children must get.
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  // Returns an error number.
  int Run(std::vector<char*> arguments, pid_t& pid) const {
    return posix_spawnp(&pid, arguments.front(), &actions_, &attributes_, arguments.data(),
                        environ);
  }

 private:
  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
};

std::string ReadOutput(int file) {
  std::string output(kMaxOutput, '\0');
  const ssize_t size = Retry([&] { return pread(file, output.data(), output.size(), 0); });
  output.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return output;
}

// What a program says about its failure, on one line. The reason comes first (mkfs.xfs goes on with
// its usage) or last (mke2fs begins with its version).
std::string Excerpt(const std::string& output) {
  constexpr size_t kFirst = 3;
  constexpr size_t kLast = 1;
  constexpr size_t kMaxLine = 300;  // bytes
  std::vector<std::string> lines = absl::StrSplit(output, '\n', absl::SkipWhitespace());
  if (lines.size() > kFirst + kLast) {
    lines.erase(lines.begin() + kFirst, lines.end() - kLast);
    lines.insert(lines.end() - kLast, "...");
  }
  for (std::string& line : lines) {
    absl::StripAsciiWhitespace(&line);
    if (line.size() > kMaxLine) line.resize(kMaxLine);
  }
  return absl::StrJoin(lines, "; ");
}

}  // namespace

std::string Said(const OwnedDescriptor& file) { return Excerpt(ReadOutput(file.number())); }

bool IsInstalled(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  const std::string_view directories = path == nullptr ? "/usr/sbin:/usr/bin:/sbin:/bin" : path;
  for (size_t at = 0; at <= directories.size();) {
    const size_t end = std::min(directories.find(':', at), directories.size());
    const std::string file = std::string(directories.substr(at, end - at)) + "/" + program;
    if (::access(file.c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& command,
                                         std::chrono::milliseconds limit) {
  // A file, not a pipe: what stays in the background would keep a pipe open.
  OwnedDescriptor output(::memfd_create(command.front().c_str(), MFD_CLOEXEC));
  if (!output.has_value()) return absl::UnavailableError(ErrnoText(errno));
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (const int error = Spawn(output.number()).Run(arguments, pid); error != 0) {
    const std::string text = absl::StrCat(command.front(), ": ", ErrnoText(error));
    return error == ENOENT ? absl::FailedPreconditionError(text) : absl::UnavailableError(text);
  }
  const auto latest = std::chrono::steady_clock::now() + limit;
  auto pause = std::chrono::milliseconds(1);
  int status = 0;
  bool killed = false;
  for (;;) {
    const pid_t ended = Retry([&] { return waitpid(pid, &status, killed ? 0 : WNOHANG); });
    if (ended < 0) return absl::UnavailableError(ErrnoText(errno));
    if (ended == pid) break;
    if (std::chrono::steady_clock::now() > latest) {
      kill(pid, SIGKILL);
      killed = true;
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(20));
  }
  if (killed) {
    return absl::DeadlineExceededError(
        absl::StrCat(command.front(), ": did not end within ", limit.count(), " ms"));
  }
  if (!WIFEXITED(status)) {
    return absl::InternalError(
        absl::StrCat(command.front(), ": killed by signal ", WTERMSIG(status)));
  }
  return ProgramResult{.exit_status = WEXITSTATUS(status),
                       .output = ReadOutput(output.number()),
                       .file = std::move(output)};
}

absl::StatusOr<std::string> CallProgram(const std::vector<std::string>& command,
                                        std::chrono::milliseconds limit) {
  absl::StatusOr<ProgramResult> result = RunProgram(command, limit);
  if (!result.ok()) return result.status();
  absl::StripTrailingAsciiWhitespace(&result->output);
  if (result->exit_status != 0) {
    return absl::InternalError(absl::StrCat(command.front(), ": exit status ", result->exit_status,
                                            ": ", Excerpt(result->output)));
  }
  return std::move(result->output);
}

}  // namespace cbt::driver
