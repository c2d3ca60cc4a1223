#include "base/directory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt {
namespace {

constexpr char kLockName[] = "LOCK";

// The errors of file systems that can't lock directories: NFS requires a file that is open for
// writing.
bool LocksNoDirectories(int error) noexcept {
  return error == EBADF || error == EINVAL || error == ENOLCK || error == ENOSYS ||
         error == EOPNOTSUPP;
}

// Returns 0 or the error number.
int LockNow(int descriptor) noexcept {
  return Retry([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<Directory> Directory::Open(const std::string& path, std::string_view shown) {
  if (shown.empty()) shown = path;
  OwnedDescriptor descriptor(cbt::OpenFile(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.has_value() && errno == EACCES) {
    descriptor = OwnedDescriptor(cbt::OpenFile(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  if (!descriptor.has_value()) return FileError(shown, errno);
  return Directory(std::move(descriptor), std::string(shown));
}

std::string Directory::Shown(std::string_view file) const {
  return absl::StrCat(shown_, "/", AbslView(file));
}

absl::StatusOr<bool> Directory::Has(const std::string& file) const {
  if (::faccessat(descriptor(), file.c_str(), F_OK, 0) == 0) return true;
  // A file that can't be checked may exist.
  if (errno == ENOENT) return false;
  return FileError(Shown(file), errno);
}

absl::StatusOr<std::vector<std::string>> Directory::List() const {
  // Opened again, for a separate position.
  absl::StatusOr<OwnedDescriptor> again = OpenFile(".", O_RDONLY | O_DIRECTORY);
  if (!again.ok()) return again.status();
  const OwnedDirectory stream(::fdopendir(again->number()));
  if (stream == nullptr) return FileError(shown_, errno);
  static_cast<void>(again->Release());
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    const dirent* const entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return FileError(shown_, errno);
  return names;
}

absl::StatusOr<OwnedDescriptor> Directory::OpenFile(const std::string& file, int flags) const {
  OwnedDescriptor opened(
      Retry([&] { return ::openat(descriptor(), file.c_str(), flags | O_CLOEXEC); }));
  if (!opened.has_value()) return FileError(Shown(file), errno);
  return opened;
}

absl::StatusOr<std::vector<uint8_t>> Directory::Read(const std::string& file, uint64_t most) const {
  // O_NONBLOCK: don't wait for a writer if it is a pipe.
  absl::StatusOr<OwnedDescriptor> opened = OpenFile(file, O_RDONLY | O_NONBLOCK);
  if (!opened.ok()) return opened.status();
  struct stat stat;
  if (::fstat(opened->number(), &stat) != 0) return FileError(Shown(file), errno);
  if (!S_ISREG(stat.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(Shown(file), ": not a regular file"));
  }
  if (static_cast<uint64_t>(stat.st_size) > most) {
    return absl::DataLossError(absl::StrCat(Shown(file), ": has ", stat.st_size,
                                            " bytes, more than the maximum of ", most));
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(stat.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = Retry([&] {
      return ::pread(opened->number(), bytes.data() + done, bytes.size() - done,
                     static_cast<off_t>(done));
    });
    if (count < 0) return FileError(Shown(file), errno);
    // The file was truncated: parsing detects that.
    if (count == 0) bytes.resize(done);
    done += static_cast<size_t>(count);
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<const MappedFile>> Directory::Map(
    const std::string& file, MappedFile::Watched watched) const {
  absl::StatusOr<OwnedDescriptor> opened = OpenFile(file, O_RDONLY | O_NONBLOCK);
  if (!opened.ok()) return opened.status();
  return MappedFile::FromDescriptor(*std::move(opened), Shown(file), watched);
}

absl::Status Directory::Write(const std::string& file,
                              std::span<const std::span<const uint8_t>> parts, bool sync) const {
  return WriteFileAtomicallyAt(descriptor(), file, Shown(file), parts, sync);
}

absl::StatusOr<Directory> Directory::OpenDirectory(const std::string& name) const {
  absl::StatusOr<OwnedDescriptor> opened = OpenFile(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!opened.ok()) return opened.status();
  return Directory(*std::move(opened), Shown(name));
}

absl::StatusOr<Directory> Directory::MakeDirectory(const std::string& name, bool sync) const {
  if (::mkdirat(descriptor(), name.c_str(), S_IRWXU | S_IRWXG | S_IRWXO) != 0 && errno != EEXIST) {
    return FileError(Shown(name), errno);
  }
  if (sync) {
    if (absl::Status status = Sync(); !status.ok()) return status;
  }
  return OpenDirectory(name);
}

absl::Status Directory::RemoveTree(const std::string& name) const {
  if (::unlinkat(descriptor(), name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  // Linux says EISDIR for a directory, POSIX EPERM.
  if (errno != EISDIR && errno != EPERM) return FileError(Shown(name), errno);
  const absl::StatusOr<Directory> directory = OpenDirectory(name);
  if (!directory.ok()) return directory.status();
  const absl::StatusOr<std::vector<std::string>> names = directory->List();
  if (!names.ok()) return names.status();
  for (const std::string& each : *names) {
    if (absl::Status status = directory->RemoveTree(each); !status.ok()) return status;
  }
  if (::unlinkat(descriptor(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) {
    return absl::OkStatus();
  }
  return FileError(Shown(name), errno);
}

std::string Directory::PathOf(std::string_view file) const {
  return absl::StrCat("/proc/self/fd/", descriptor(), "/", AbslView(file));
}

absl::StatusOr<bool> Directory::IsNamed(const std::string& file, int opened) const {
  struct stat by_name;
  struct stat by_descriptor;
  if (::fstat(opened, &by_descriptor) != 0) return FileError(Shown(file), errno);
  if (::fstatat(descriptor(), file.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return FileError(Shown(file), errno);
  }
  return by_name.st_dev == by_descriptor.st_dev && by_name.st_ino == by_descriptor.st_ino;
}

bool Directory::Remove(const char* file) const noexcept {
  return ::unlinkat(descriptor(), file, 0) == 0 || errno == ENOENT;
}

absl::Status Directory::Sync() const { return SyncDirectory(descriptor(), shown_); }

// A lock belongs to the open file description, which a forked child shares. The child closes its
// descriptors at once: otherwise the lock would outlive the parent, and the child could not claim
// the directory later.
class ClaimRegistry {
 public:
  static ClaimRegistry& The() {
    static ClaimRegistry* const registry = new ClaimRegistry;  // claims may outlive static objects
    return *registry;
  }

  void Add(DirectoryClaim& claim) {
    const std::lock_guard<std::mutex> lock(mutex_);
    claim.next_ = first_;
    if (first_ != nullptr) first_->previous_ = &claim;
    first_ = &claim;
  }

  void Remove(DirectoryClaim& claim) {
    const std::lock_guard<std::mutex> lock(mutex_);
    (claim.previous_ != nullptr ? claim.previous_->next_ : first_) = claim.next_;
    if (claim.next_ != nullptr) claim.next_->previous_ = claim.previous_;
  }

 private:
  ClaimRegistry() {
    ::pthread_atfork([] { The().mutex_.lock(); }, [] { The().mutex_.unlock(); },
                     [] {
                       ClaimRegistry& registry = The();
                       for (DirectoryClaim* claim = registry.first_; claim != nullptr;
                            claim = claim->next_) {
                         claim->lock_.Close();
                       }
                       registry.first_ = nullptr;
                       registry.mutex_.unlock();
                     });
  }

  std::mutex mutex_;
  DirectoryClaim* first_ = nullptr;
};

DirectoryClaim::DirectoryClaim(Directory directory, OwnedDescriptor lock)
    : directory_(std::move(directory)), lock_(std::move(lock)) {
  ClaimRegistry::The().Add(*this);
}

DirectoryClaim::~DirectoryClaim() {
  if (IsOurs()) ClaimRegistry::The().Remove(*this);
}

absl::StatusOr<std::unique_ptr<DirectoryClaim>> DirectoryClaim::Take(const Directory& directory) {
  // Separate from the directory's own descriptor, which a forked child may keep using to read.
  absl::StatusOr<OwnedDescriptor> lock = directory.OpenFile(".", O_RDONLY | O_DIRECTORY);
  if (!lock.ok()) return lock.status();
  // Register before locking: a fork() in between must find the descriptor.
  std::unique_ptr<DirectoryClaim> claim(new DirectoryClaim(directory, *std::move(lock)));
  if (absl::Status status = claim->Lock(); !status.ok()) return status;
  return claim;
}

absl::Status DirectoryClaim::Lock() {
  int error = LockNow(lock_.number());
  if (LocksNoDirectories(error)) {
    by_file_ = true;
    lock_ = OwnedDescriptor(Retry([&] {
      return ::openat(directory_.descriptor(), kLockName, O_RDWR | O_CREAT | O_CLOEXEC,
                      S_IRUSR | S_IWUSR);
    }));
    error = lock_.has_value() ? LockNow(lock_.number()) : errno;
  }
  if (error == 0) return absl::OkStatus();
  if (error != EWOULDBLOCK) return FileError(directory_.shown(), error);
  return absl::UnavailableError(
      absl::StrCat(directory_.shown(), ": another process or object has it open for changes"));
}

absl::Status DirectoryClaim::Check() const {
  if (!IsOurs()) return CopiedByFork(directory_.shown());
  if (!by_file_) return absl::OkStatus();
  const absl::StatusOr<bool> same = directory_.IsNamed(kLockName, lock_.number());
  if (!same.ok()) return same.status();
  if (*same) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      directory_.Shown(kLockName),
      ": was removed or replaced, so another process may use the directory; reopen it"));
}

absl::Status CopiedByFork(std::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(AbslView(what),
                   ": was opened before fork() and can't be used in the child; open it in "
                   "the process that uses it"));
}

}  // namespace cbt
