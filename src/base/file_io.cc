#include "base/file_io.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"

namespace cbt {
namespace {

// Whether `path` is a device, a pipe or a socket, which a file must not take the place of.
bool IsSpecial(int at, const std::string& path) {
  struct stat status;
  return ::fstatat(at, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode) && !S_ISDIR(status.st_mode);
}

// WriteFileAtomically() without the sync of the directory.
absl::Status WriteAndRename(int at, const std::string& path, std::string_view shown,
                            std::span<const std::span<const uint8_t>> parts, bool sync) {
  if (IsSpecial(at, path)) {
    return absl::FailedPreconditionError(
        absl::StrCat(AbslView(shown), ": is not a regular file, and stays as it is"));
  }
  std::string temporary;
  OwnedDescriptor file(CreateBeside(at, path, temporary));
  if (file.number() < 0) return FileError(shown, errno);
  int error = 0;
  for (const std::span<const uint8_t> part : parts) {
    if (error == 0) error = WriteAll(file.number(), part);
  }
  if (error == 0 && sync && Retry([&] { return ::fsync(file.number()); }) != 0) error = errno;
  const int closed = file.Close();
  if (error == 0) error = closed;
  if (error == 0 && ::renameat(at, temporary.c_str(), at, path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlinkat(at, temporary.c_str(), 0);
    return FileError(shown, error);
  }
  return absl::OkStatus();
}

}  // namespace

int CreateBeside(int at, const std::string& path, std::string& temporary) {
  static std::atomic<uint64_t> counter{0};
  constexpr int kTries = 100;
  const std::filesystem::path place(path);
  const std::string name = place.filename();
  for (int i = 0; i < kTries; ++i) {
    // Shortened, so that the result fits if the name itself does.
    temporary =
        place.parent_path() / absl::StrCat(".", name.substr(0, 200), ".", ::getpid(), "-",
                                           counter.fetch_add(1), AbslView(kPartialExtension));
    const int descriptor = Retry([&] {
      return ::openat(at, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                      S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH);
    });
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

absl::Status FileError(std::string_view path, int error) {
  const std::string text = absl::StrCat(AbslView(path), ": ", ErrnoText(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text);
    case EEXIST:
      return absl::AlreadyExistsError(text);
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return absl::InvalidArgumentError(text);
    case ENXIO:
    case ENODEV:
      return absl::FailedPreconditionError(text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

int OpenFile(const std::string& path, int flags, unsigned mode) noexcept {
  return Retry([&] { return ::open(path.c_str(), flags, mode); });
}

std::string DirectoryOf(const std::string& path) {
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  return directory.empty() ? "." : directory.string();
}

absl::Status SyncDirectory(const std::string& path) {
  const OwnedDescriptor directory(OpenFile(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A directory that may be written but not read can't be opened for this.
  if (directory.number() < 0) return errno == EACCES ? absl::OkStatus() : FileError(path, errno);
  return SyncDirectory(directory.number(), path);
}

absl::Status SyncDirectory(int directory, std::string_view shown) {
  // File systems that can't sync a directory return EINVAL.
  if (Retry([&] { return ::fsync(directory); }) != 0 && errno != EINVAL) {
    return FileError(shown, errno);
  }
  return absl::OkStatus();
}

absl::Status MakeDirectory(const std::string& path, bool sync) {
  if (::mkdir(path.c_str(), S_IRWXU | S_IRWXG | S_IRWXO) != 0 && errno != EEXIST) {
    return FileError(path, errno);
  }
  if (!sync) return absl::OkStatus();
  const size_t end = path.find_last_not_of('/');
  return SyncDirectory(DirectoryOf(path.substr(0, end == std::string::npos ? 1 : end + 1)));
}

int WriteAll(int descriptor, std::span<const uint8_t> bytes) noexcept {
  // A single write(2) is limited to about 2 GiB.
  constexpr size_t kMost = kGiB;
  while (!bytes.empty()) {
    const ssize_t written =
        Retry([&] { return ::write(descriptor, bytes.data(), std::min(bytes.size(), kMost)); });
    if (written < 0) return errno;
    if (written == 0) return EIO;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

absl::Status WriteFileAtomically(const std::string& path,
                                 std::span<const std::span<const uint8_t>> parts, bool sync) {
  // First, because it may throw: after the rename, that would report a written file as failed.
  const std::string directory = DirectoryOf(path);
  if (absl::Status status = WriteAndRename(AT_FDCWD, path, path, parts, sync); !status.ok()) {
    return status;
  }
  return sync ? SyncDirectory(directory) : absl::OkStatus();
}

absl::Status WriteFileAtomicallyAt(int directory, const std::string& file, std::string_view shown,
                                   std::span<const std::span<const uint8_t>> parts, bool sync) {
  absl::Status status = WriteAndRename(directory, file, shown, parts, sync);
  return status.ok() && sync ? SyncDirectory(directory, shown) : status;
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path,
                                                                   std::string_view name,
                                                                   Watched watched) {
  if (name.empty()) name = path;
  // O_NONBLOCK: don't wait for a writer if it is a pipe.
  OwnedDescriptor descriptor(OpenFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.has_value()) return FileError(name, errno);
  return FromDescriptor(std::move(descriptor), name, watched);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::FromDescriptor(OwnedDescriptor owned,
                                                                             std::string_view name,
                                                                             Watched watched) {
  const int descriptor = owned.number();
  auto* const made = new MappedFile(descriptor, std::string(name));
  static_cast<void>(owned.Release());
  const std::shared_ptr<MappedFile> file(made);
  struct stat stat;
  if (::fstat(descriptor, &stat) != 0) return FileError(name, errno);
  if (!S_ISREG(stat.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(AbslView(name), ": not a regular file"));
  }
  file->opened_ = stat;
  const auto size = static_cast<size_t>(stat.st_size);
  if (size == 0) return file;
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (memory == MAP_FAILED) return FileError(name, errno);
  file->bytes_ = static_cast<uint8_t*>(memory);
  file->size_ = size;
  if (watched == Watched::kNo) ::close(std::exchange(file->descriptor_, -1));
  return file;
}

bool WasWritten(const struct stat& before, const struct stat& now) noexcept {
  const auto same = [](const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  };
  const bool removed = now.st_nlink < before.st_nlink;
  return !same(before.st_mtim, now.st_mtim) || (!removed && !same(before.st_ctim, now.st_ctim));
}

absl::Status MappedFile::CheckUnchanged() const {
  struct stat now;
  if (::fstat(descriptor_, &now) != 0) {
    return absl::UnavailableError(FileError(name_, errno).message());
  }
  if (now.st_size == opened_.st_size && !WasWritten(opened_, now)) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(name_, ": was modified since it was opened"));
}

MappedFile::~MappedFile() {
  if (bytes_ != nullptr) ::munmap(bytes_, size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace cbt
