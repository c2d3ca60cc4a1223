#include "programs/cbt/support/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <utility>

#include "base/file_io.h"
#include "cbt/units.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

std::function<absl::StatusOr<int>(const std::string& path)> InputFiles::Opener() {
  if (std::ranges::find(names_, "-") != names_.end()) return {};
  return [this](const std::string& path) -> absl::StatusOr<int> {
    // Without O_NONBLOCK, opening a pipe without a writer would hang here before it could be
    // refused.
    const int descriptor = OpenFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return OpenError(path, errno);
    struct stat info {};
    if (fstat(descriptor, &info) == 0) opened_.push_back(info);
    return descriptor;
  };
}

void InputFiles::Add(const InputFiles& others) {
  names_.insert(names_.end(), others.names_.begin(), others.names_.end());
  opened_.insert(opened_.end(), others.opened_.begin(), others.opened_.end());
}

bool InputFiles::Include(const struct stat& file) const {
  const auto is_it = [&file](const struct stat& input) { return MayBeSameFile(input, file); };
  return std::ranges::any_of(opened_, is_it) ||
         std::ranges::any_of(names_, [&](const std::string& name) {
           struct stat info {};
           // A missing file was not read either.
           return (name == "-" ? fstat(STDIN_FILENO, &info) : stat(name.c_str(), &info)) == 0 &&
                  is_it(info);
         });
}

void WarnIfSwapped(const char* subcommand, const std::string& base, const std::string& target) {
  const auto stat_of = [](const std::string& path, struct stat& info) {
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  };
  struct stat old {};
  struct stat now {};
  if (!stat_of(base, old) || !stat_of(target, now)) return;
  // Files that one program has made may come in any order.
  constexpr time_t kTogether = 60;  // seconds
  if (old.st_mtim.tv_sec <= now.st_mtim.tv_sec + kTogether) return;
  Note(subcommand, "warning: " + base + ", the base, was written after " + target +
                       ", the target: are the two swapped?");
}

bool MayBeSameFile(const struct stat& a, const struct stat& b) noexcept {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

namespace {

// `path` without symbolic links, as far as it exists.
absl::Status CheckDirectory(const std::string& path, const InputFiles& inputs,
                            const std::string& shown) {
  struct stat info {};
  if (stat(DirectoryOf(path).c_str(), &info) == 0 && inputs.Include(info)) {
    return UsageError(shown, "lies in a directory that is an input");
  }
  return absl::OkStatus();
}

}  // namespace

mode_t CurrentUmask() {
  const mode_t mask = umask(0);
  umask(mask);
  return mask;
}

bool IsStdout(const std::string& path) { return path == "-" || path == "/dev/stdout"; }

absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path, const InputFiles& inputs) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return OpenError(path, errno);
    if (path.empty() || path.back() == '/') return UsageError("'" + path + "'", "not a file name");
    if (absl::Status status = CheckDirectory(path, inputs, path); !status.ok()) return status;
    return OutputPlace{path};
  }
  std::array<char, PATH_MAX> resolved{};
  if (realpath(path.c_str(), resolved.data()) == nullptr || stat(resolved.data(), &info) != 0) {
    return OpenError(path, errno);
  }
  if (S_ISDIR(info.st_mode)) return UsageError(path, "is a directory");
  if (!S_ISREG(info.st_mode)) return UsageError(path, "is not a regular file");
  if (inputs.Include(info)) return UsageError(path, "is one of the inputs");
  OutputPlace place{resolved.data(), info};
  if (absl::Status status = CheckDirectory(place.path, inputs, path); !status.ok()) return status;
  return place;
}

namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};

// The path that signal handlers remove; points into the only TempFile.
std::atomic<const char*> file_to_remove{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free, "read by a signal handler");

extern "C" void RemoveAndDie(int signal_number) {
  const char* const path = file_to_remove.load();
  if (path != nullptr) unlink(path);
  // SA_RESETHAND has restored the default action, so the parent sees which signal ended us.
  raise(signal_number);
}

void InstallHandlers() {
  for (const int number : kSignals) {
    struct sigaction old {};
    // A signal ignored at start (nohup) stays ignored.
    if (sigaction(number, nullptr, &old) != 0 || old.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = RemoveAndDie;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

// Blocks the signals above while the file and file_to_remove disagree.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : kSignals) sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, &old_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t old_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TempFile>> TempFile::Create(const std::string& path, mode_t mode) {
  // A name that no other process has had, since the handler may remove it before it is a file.
  const std::string stem = DirectoryOf(path) + "/.cbt-" + std::to_string(getpid()) + "-";
  std::random_device random;
  const SignalsHeld held;
  std::unique_ptr<TempFile> file(
      new TempFile(stem + std::to_string(random()) + std::to_string(random()) + ".partial", path));
  // Another thread may get the signal at once.
  file_to_remove.store(file->temporary_.c_str());
  InstallHandlers();
  file->descriptor_ = OpenFile(file->temporary_, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file->descriptor_ >= 0) return file;
  const int error = errno;
  file->committed_ = true;  // nothing to remove
  return OpenError(path, error);
}

TempFile::TempFile(std::string temporary, std::string path)
    : temporary_(std::move(temporary)), path_(std::move(path)) {}

TempFile::~TempFile() {
  const SignalsHeld held;
  if (descriptor_ >= 0) close(descriptor_);
  if (!committed_) unlink(temporary_.c_str());
  file_to_remove.store(nullptr);
}

absl::Status TempFile::Commit(std::optional<mode_t> mode) {
  if (mode.has_value() && fchmod(descriptor_, *mode) != 0) return IoError(path_, errno);
  if (Retry([&] { return fsync(descriptor_); }) != 0) return IoError(path_, errno);
  // Some network file systems report a failed write only on close.
  const int closed = close(std::exchange(descriptor_, -1));
  if (closed != 0 && errno != EINTR) return IoError(path_, errno);
  {
    const SignalsHeld held;
    if (rename(temporary_.c_str(), path_.c_str()) != 0) return IoError(path_, errno);
    committed_ = true;
    file_to_remove.store(nullptr);
  }
  return SyncDirectory(DirectoryOf(path_));
}

absl::Status WriteOutputFile(const std::string& path,
                             std::span<const std::span<const uint8_t>> parts) {
  constexpr mode_t kAll = 0666;  // less the umask
  const absl::StatusOr<std::unique_ptr<TempFile>> file = TempFile::Create(path, kAll);
  if (!file.ok()) return file.status();
  for (const std::span<const uint8_t> part : parts) {
    if (const int error = WriteAll((*file)->descriptor(), part); error != 0) {
      return FileError(path, error);
    }
  }
  return (*file)->Commit();
}

namespace {

constexpr size_t kMaxBytes = kMiB;

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& option, const std::string& path) {
  const std::string where = option + ": " + path;
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return OpenError(where, errno);
  std::string text;
  int error = 0;
  std::array<char, 4096> buffer;
  while (text.size() <= kMaxBytes) {
    const ssize_t got = read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  close(descriptor);
  if (error != 0) return OpenError(where, error);
  if (text.size() > kMaxBytes) return UsageError(where, "larger than 1 MiB");
  return text;
}

absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(const std::string& option,
                                                               const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(option, path);
  if (!text.ok()) return text.status();
  std::map<std::string, std::string> secrets;
  std::string_view rest = *text;
  for (int line_number = 1; !rest.empty(); ++line_number) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    std::string where = option;
    where.append(": ").append(path).append(": line ").append(std::to_string(line_number));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return UsageError(where, "not KEY=VALUE");
    }
    const bool added =
        secrets.emplace(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)))
            .second;
    if (!added) return UsageError(where, "duplicate key");
  }
  return secrets;
}

}  // namespace cbt::cli
