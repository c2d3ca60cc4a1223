// Calls on files, see calls.h.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "tests/faults/shim/calls.h"

namespace cbt::test {
namespace {

constexpr unsigned kOpens = kOnFile | kInterruptible | kMakesDescriptor | kTakesMemory;
constexpr unsigned kWrites = kOnFile | kMovesBytes | kInterruptible | kTakesSpace;
constexpr unsigned kReads = kOnFile | kMovesBytes | kInterruptible;
constexpr unsigned kNames = kOnFile | kTakesSpace;

constexpr Call kOpen{"open", kOpens}, kCreate{"create", kOpens | kTakesSpace};
constexpr Call kOpenDirectory{"opendir", kOpens & ~kInterruptible};
constexpr Call kReadDirectory{"readdir", kOnFile};
constexpr Call kRead{"read", kReads}, kPread{"pread", kReads};
constexpr Call kWrite{"write", kWrites}, kPwrite{"pwrite", kWrites};
constexpr Call kSeek{"lseek", kOnFile}, kSeekHole{"lseek", kOnFile | kMovesBytes};
constexpr Call kStat{"stat", kOnFile | kTakesMemory};
constexpr Call kAccess{"access", kOnFile | kTakesMemory};
constexpr Call kStatFs{"fstatfs", kOnFile | kInterruptible | kTakesMemory};
constexpr Call kIoctl{"ioctl", kOnFile | kInterruptible | kTakesMemory};
constexpr Call kClone{"ioctl", kIoctl.traits | kTakesSpace};
constexpr Call kFcntl{"fcntl", kOnFile | kMakesDescriptor};
constexpr Call kMap{"mmap", kOnFile | kTakesMemory};
constexpr Call kSync{"fsync", kOnFile | kInterruptible | kTakesSpace};
constexpr Call kDataSync{"fdatasync", kOnFile | kInterruptible | kTakesSpace};
constexpr Call kTruncate{"ftruncate", kOnFile | kInterruptible | kTakesSpace};
constexpr Call kAllocate{"fallocate", kOnFile | kInterruptible | kTakesSpace};
constexpr Call kCopy{"copy_file_range", kWrites | kTakesMemory};
constexpr Call kMode{"fchmod", kOnFile};
constexpr Call kLock{"flock", kOnFile | kInterruptible | kTakesMemory};
constexpr Call kRename{"rename", kNames}, kUnlink{"unlink", kOnFile},
    kMakeDirectory{"mkdir", kNames};
constexpr Call kCloseFile{"close", kOnFile | kInterruptible | kTakesSpace};
constexpr Call kCloseSocket{"close", kOnSocket};

constexpr int kDescriptors = 4096;
std::atomic<DescriptorKind> kinds[kDescriptors];

bool IsFile(int descriptor) { return KindOf(descriptor) == DescriptorKind::kFile; }

// Relative to a watched directory, or through its descriptor.
bool IsWatched(int directory, const char* path) {
  int number = 0;
  if (sscanf(path, "/proc/self/fd/%d", &number) == 1) return IsFile(number);
  return *path == '/' ? IsBelow(path) : IsFile(directory);
}

template <typename Run>
int Open(int directory, const char* path, int flags, Run run) {
  const bool watched = IsWatched(directory, path);
  const Attempt attempt{.call = (flags & O_CREAT) != 0 ? kCreate : kOpen,
                        .descriptor = directory,
                        .path = path,
                        .flags = flags};
  const int opened = Make(watched, attempt, -1, [&](size_t) {
    const int descriptor = run();
    SetKind(descriptor, watched ? DescriptorKind::kFile : DescriptorKind::kNone);
    return descriptor;
  });
  return opened;
}

template <typename Run>
int OnPathAt(const Call& call, int directory, const char* path, Run run) {
  return Make(IsWatched(directory, path), {.call = call, .descriptor = directory, .path = path}, -1,
              [&](size_t) { return run(); });
}

template <typename Run>
int OnPath(const Call& call, const char* path, Run run) {
  return OnPathAt(call, -1, path, run);
}

template <typename Run>
int OnFile(const Call& call, int descriptor, Run run) {
  return Make(IsFile(descriptor), {.call = call, .descriptor = descriptor}, -1,
              [&](size_t) { return run(); });
}

mode_t ModeOf(int flags, va_list arguments) {
  const bool needed = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return needed ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

DescriptorKind KindOf(int descriptor) {
  return descriptor >= 0 && descriptor < kDescriptors ? kinds[descriptor].load()
                                                      : DescriptorKind::kNone;
}

void SetKind(int descriptor, DescriptorKind kind) {
  if (descriptor >= 0 && descriptor < kDescriptors) kinds[descriptor] = kind;
}

bool IsBelow(const char* path) {
  const char* const directory = WatchedDirectory();
  return *directory != '\0' && strncmp(path, directory, strlen(directory)) == 0;
}

int CloseDescriptor(int descriptor) {
  const DescriptorKind kind = KindOf(descriptor);
  SetKind(descriptor, DescriptorKind::kNone);
  if (kind == DescriptorKind::kNone) return CBT_REAL(close)(descriptor);
  const Attempt attempt{.call = kind == DescriptorKind::kFile ? kCloseFile : kCloseSocket,
                        .descriptor = descriptor};
  const bool fails = Before(attempt) == Verdict::kFail;
  const int error = errno;
  // Closed anyway, as Linux does.
  const int result = CBT_REAL(close)(descriptor);
  After(attempt, result);
  if (!fails) return result;
  errno = error;
  return -1;
}

}  // namespace cbt::test

using namespace cbt::test;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open(-1, path, flags, [&] { return CBT_REAL(open)(path, flags, mode); });
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return open(path, flags, mode);
}

// Fortified code calls this instead of open().
int __open_2(const char* path, int flags) { return open(path, flags); }
int __open64_2(const char* path, int flags) { return open(path, flags); }

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open(directory, path, flags,
              [&] { return CBT_REAL(openat)(directory, path, flags, mode); });
}

int openat64(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return openat(directory, path, flags, mode);
}

// The C library has no function for openat2().
long syscall(long number, ...) {
  va_list arguments;
  va_start(arguments, number);
  long given[6];
  for (long& each : given) each = va_arg(arguments, long);
  va_end(arguments);
  const auto run = [&] {
    return CBT_REAL(syscall)(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  };
  if (number != SYS_openat2) return run();
  return Open(static_cast<int>(given[0]), reinterpret_cast<const char*>(given[1]), 0,
              [&] { return static_cast<int>(run()); });
}

ssize_t read(int descriptor, void* bytes, size_t size) {
  return Make<ssize_t>(KindOf(descriptor) != DescriptorKind::kNone,
                       {.call = kRead, .descriptor = descriptor, .size = size}, -1,
                       [&](size_t most) { return CBT_REAL(read)(descriptor, bytes, most); });
}

ssize_t __read_chk(int descriptor, void* bytes, size_t size, size_t) {
  return read(descriptor, bytes, size);
}

ssize_t pread(int descriptor, void* bytes, size_t size, off_t offset) {
  return Make<ssize_t>(
      IsFile(descriptor),
      {.call = kPread, .descriptor = descriptor, .size = size, .offset = offset}, -1,
      [&](size_t most) { return CBT_REAL(pread)(descriptor, bytes, most, offset); });
}

ssize_t pread64(int descriptor, void* bytes, size_t size, off_t offset) {
  return pread(descriptor, bytes, size, offset);
}

ssize_t __pread64_chk(int descriptor, void* bytes, size_t size, off_t offset, size_t) {
  return pread(descriptor, bytes, size, offset);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  return Make<ssize_t>(KindOf(descriptor) != DescriptorKind::kNone,
                       {.call = kWrite, .descriptor = descriptor, .bytes = bytes, .size = size}, -1,
                       [&](size_t most) { return CBT_REAL(write)(descriptor, bytes, most); });
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return Make<ssize_t>(
      IsFile(descriptor),
      {.call = kPwrite, .descriptor = descriptor, .bytes = bytes, .size = size, .offset = offset},
      -1, [&](size_t most) { return CBT_REAL(pwrite)(descriptor, bytes, most, offset); });
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off_t offset) {
  return pwrite(descriptor, bytes, size, offset);
}

off_t lseek(int descriptor, off_t offset, int whence) noexcept {
  // A short answer: the data that the previous call found has become a hole.
  constexpr size_t kWhole = 2;
  return Make<off_t>(IsFile(descriptor),
                     {.call = whence == SEEK_HOLE ? kSeekHole : kSeek,
                      .descriptor = descriptor,
                      .size = kWhole,
                      .offset = offset,
                      .flags = whence},
                     -1, [&](size_t size) {
                       return size == kWhole ? CBT_REAL(lseek)(descriptor, offset, whence) : offset;
                     });
}

off_t lseek64(int descriptor, off_t offset, int whence) noexcept {
  return lseek(descriptor, offset, whence);
}

int fstat(int descriptor, struct stat* out) noexcept {
  return Make(IsFile(descriptor), {.call = kStat, .descriptor = descriptor, .status = out}, -1,
              [&](size_t) { return CBT_REAL(fstat)(descriptor, out); });
}

int fstat64(int descriptor, struct stat64* out) noexcept {
  return fstat(descriptor, reinterpret_cast<struct stat*>(out));
}

int stat(const char* path, struct stat* out) noexcept {
  return OnPath(kStat, path, [&] { return CBT_REAL(fstatat)(AT_FDCWD, path, out, 0); });
}

int stat64(const char* path, struct stat64* out) noexcept {
  return stat(path, reinterpret_cast<struct stat*>(out));
}

int lstat(const char* path, struct stat* out) noexcept {
  return OnPath(kStat, path,
                [&] { return CBT_REAL(fstatat)(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW); });
}

int access(const char* path, int mode) noexcept {
  return OnPath(kAccess, path, [&] { return CBT_REAL(access)(path, mode); });
}

int faccessat(int directory, const char* path, int mode, int flags) noexcept {
  return OnPathAt(kAccess, directory, path,
                  [&] { return CBT_REAL(faccessat)(directory, path, mode, flags); });
}

int fstatfs(int descriptor, struct statfs* out) noexcept {
  return OnFile(kStatFs, descriptor, [&] { return CBT_REAL(fstatfs)(descriptor, out); });
}

int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const Call& call = request == FICLONE ? kClone : kIoctl;
  return OnFile(call, descriptor, [&] { return CBT_REAL(ioctl)(descriptor, request, argument); });
}

int fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const int result =
      OnFile(kFcntl, descriptor, [&] { return CBT_REAL(fcntl)(descriptor, command, argument); });
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) SetKind(result, KindOf(descriptor));
  return result;
}

int fcntl64(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl(descriptor, command, argument);
}

void* mmap(void* at, size_t size, int protection, int flags, int descriptor,
           off_t offset) noexcept {
  return Make(
      IsFile(descriptor), {.call = kMap, .descriptor = descriptor, .size = size}, MAP_FAILED,
      [&](size_t) { return CBT_REAL(mmap)(at, size, protection, flags, descriptor, offset); });
}

void* mmap64(void* at, size_t size, int protection, int flags, int descriptor,
             off_t offset) noexcept {
  return mmap(at, size, protection, flags, descriptor, offset);
}

int fsync(int descriptor) {
  return OnFile(kSync, descriptor, [&] { return CBT_REAL(fsync)(descriptor); });
}

int fdatasync(int descriptor) {
  return OnFile(kDataSync, descriptor, [&] { return CBT_REAL(fdatasync)(descriptor); });
}

int ftruncate(int descriptor, off_t size) noexcept {
  return Make(IsFile(descriptor),
              {.call = kTruncate, .descriptor = descriptor, .size = static_cast<size_t>(size)}, -1,
              [&](size_t) { return CBT_REAL(ftruncate)(descriptor, size); });
}

int ftruncate64(int descriptor, off_t size) noexcept { return ftruncate(descriptor, size); }

int fallocate(int descriptor, int mode, off_t offset, off_t size) {
  return OnFile(kAllocate, descriptor,
                [&] { return CBT_REAL(fallocate)(descriptor, mode, offset, size); });
}

int fallocate64(int descriptor, int mode, off_t offset, off_t size) {
  return fallocate(descriptor, mode, offset, size);
}

ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t size,
                        unsigned flags) {
  const off_t offset = to_offset != nullptr ? *to_offset : -1;
  return Make<ssize_t>(
      IsFile(to), {.call = kCopy, .descriptor = to, .size = size, .offset = offset}, -1,
      [&](size_t most) {
        return CBT_REAL(copy_file_range)(from, from_offset, to, to_offset, most, flags);
      });
}

int fchmod(int descriptor, mode_t mode) noexcept {
  return OnFile(kMode, descriptor, [&] { return CBT_REAL(fchmod)(descriptor, mode); });
}

int flock(int descriptor, int operation) noexcept {
  return OnFile(kLock, descriptor, [&] { return CBT_REAL(flock)(descriptor, operation); });
}

int close(int descriptor) { return CloseDescriptor(descriptor); }

int rename(const char* from, const char* to) noexcept {
  return Make(IsBelow(to), {.call = kRename, .path = from, .to = to}, -1,
              [&](size_t) { return CBT_REAL(rename)(from, to); });
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  return Make(IsWatched(to_directory, to),
              {.call = kRename, .descriptor = to_directory, .path = from, .to = to}, -1,
              [&](size_t) { return CBT_REAL(renameat)(from_directory, from, to_directory, to); });
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  return OnPathAt(kUnlink, directory, path,
                  [&] { return CBT_REAL(unlinkat)(directory, path, flags); });
}

int unlink(const char* path) noexcept {
  return OnPath(kUnlink, path, [&] { return CBT_REAL(unlink)(path); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return OnPath(kMakeDirectory, path, [&] { return CBT_REAL(mkdir)(path, mode); });
}

DIR* opendir(const char* path) {
  const bool watched = IsWatched(-1, path);
  return Make<DIR*>(watched, {.call = kOpenDirectory, .path = path}, nullptr, [&](size_t) {
    DIR* const opened = CBT_REAL(opendir)(path);
    if (watched && opened != nullptr) SetKind(dirfd(opened), DescriptorKind::kFile);
    return opened;
  });
}

DIR* fdopendir(int descriptor) {
  return Make<DIR*>(IsFile(descriptor), {.call = kOpenDirectory, .descriptor = descriptor}, nullptr,
                    [&](size_t) { return CBT_REAL(fdopendir)(descriptor); });
}

dirent* readdir(DIR* directory) {
  const int descriptor = dirfd(directory);
  return Make<dirent*>(IsFile(descriptor), {.call = kReadDirectory, .descriptor = descriptor},
                       nullptr, [&](size_t) { return CBT_REAL(readdir)(directory); });
}

dirent64* readdir64(DIR* directory) { return reinterpret_cast<dirent64*>(readdir(directory)); }

int closedir(DIR* directory) {
  SetKind(dirfd(directory), DescriptorKind::kNone);
  return CBT_REAL(closedir)(directory);
}

}  // extern "C"
