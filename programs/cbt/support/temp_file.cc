#include "programs/cbt/support/temp_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/file_io.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
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

absl::StatusOr<std::unique_ptr<TempFile>> TempFile::Create(const std::string& path) {
  constexpr int kTries = 100;
  const std::string stem = DirectoryOf(path) + "/.cbt-" + std::to_string(getpid()) + "-";
  const SignalsHeld held;
  for (int i = 0; i < kTries; ++i) {
    std::string temporary = stem + std::to_string(i) + ".partial";
    const int descriptor =
        OpenFile(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (descriptor >= 0) {
      std::unique_ptr<TempFile> file(new TempFile(descriptor, std::move(temporary), path));
      file_to_remove.store(file->temporary_.c_str());
      InstallHandlers();
      return file;
    }
    if (errno != EEXIST) break;
  }
  return OpenError(path, errno);
}

TempFile::TempFile(int descriptor, std::string temporary, std::string path)
    : descriptor_(descriptor), temporary_(std::move(temporary)), path_(std::move(path)) {}

TempFile::~TempFile() {
  const SignalsHeld held;
  if (descriptor_ >= 0) close(descriptor_);
  if (!committed_) unlink(temporary_.c_str());
  file_to_remove.store(nullptr);
}

absl::Status TempFile::Commit(mode_t mode) {
  if (fchmod(descriptor_, mode) != 0) return IoError(path_, errno);
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

}  // namespace cbt::cli
