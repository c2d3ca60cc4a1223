// Preloaded into a program: lets one system call on files below a folder fail, be short, be
// interrupted, or end the process.
//
//   FAULT_BELOW  the folder
//   FAULT_AT     which call, counted from 1
//   FAULT_KIND   eio, enospc: the call fails; short: a write takes half; eintr: it is interrupted;
//                kill: the process ends before it; killafter: right after it
//   FAULT_FIRED  a file that is created when the call was reached
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kDescriptors = 4096;
std::atomic<bool> ours[kDescriptors];
std::atomic<long> calls{0};

const char* Setting(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

bool IsBelow(const char* path) {
  static const char* const folder = Setting("FAULT_BELOW");
  return *folder != '\0' && strncmp(path, folder, strlen(folder)) == 0;
}

bool IsOurs(int descriptor) {
  return descriptor >= 0 && descriptor < kDescriptors && ours[descriptor];
}

enum class Fault { kNone, kFail, kShort, kKillAfter };

// Counts a call; says what is to become of it. kFail sets errno.
Fault Count(bool is_write, bool is_interruptible) {
  static const long at = atol(Setting("FAULT_AT"));
  if (++calls != at) return Fault::kNone;
  const int fired = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, Setting("FAULT_FIRED"), O_WRONLY | O_CREAT, 0600));
  if (fired >= 0) syscall(SYS_close, fired);
  const char* const kind = Setting("FAULT_KIND");
  if (strcmp(kind, "kill") == 0) raise(SIGKILL);
  if (strcmp(kind, "killafter") == 0) return Fault::kKillAfter;
  if (strcmp(kind, "short") == 0) return is_write ? Fault::kShort : Fault::kNone;
  if (strcmp(kind, "eintr") == 0) {
    errno = EINTR;
    return is_interruptible ? Fault::kFail : Fault::kNone;
  }
  errno = strcmp(kind, "enospc") == 0 ? ENOSPC : EIO;
  return Fault::kFail;
}

template <typename Function>
Function* Real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) Real(&name, #name)

template <typename Result>
Result After(Fault fault, Result result) {
  if (fault == Fault::kKillAfter) raise(SIGKILL);
  return result;
}

int Opened(const char* path, int result) {
  if (result >= 0 && result < kDescriptors) ours[result] = IsBelow(path);
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  Fault fault = Fault::kNone;
  if (IsBelow(path)) fault = Count(false, true);
  if (fault == Fault::kFail) return -1;
  return After(fault, Opened(path, REAL(open)(path, flags, mode)));
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return open(path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  Fault fault = Fault::kNone;
  if (IsOurs(descriptor)) fault = Count(true, true);
  if (fault == Fault::kFail) return -1;
  if (fault == Fault::kShort) size = (size + 1) / 2;
  return After(fault, REAL(write)(descriptor, bytes, size));
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  Fault fault = Fault::kNone;
  if (IsOurs(descriptor)) fault = Count(true, true);
  if (fault == Fault::kFail) return -1;
  if (fault == Fault::kShort) size = (size + 1) / 2;
  return After(fault, REAL(pwrite)(descriptor, bytes, size, offset));
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off_t offset) {
  return pwrite(descriptor, bytes, size, offset);
}

int fsync(int descriptor) {
  Fault fault = Fault::kNone;
  if (IsOurs(descriptor)) fault = Count(false, true);
  return fault == Fault::kFail ? -1 : After(fault, REAL(fsync)(descriptor));
}

int fdatasync(int descriptor) {
  Fault fault = Fault::kNone;
  if (IsOurs(descriptor)) fault = Count(false, true);
  return fault == Fault::kFail ? -1 : After(fault, REAL(fdatasync)(descriptor));
}

int close(int descriptor) {
  Fault fault = Fault::kNone;
  if (IsOurs(descriptor)) {
    fault = Count(false, true);
    ours[descriptor] = false;
  }
  // Closed all the same, as Linux does.
  const int error = errno;
  const int result = REAL(close)(descriptor);
  if (fault != Fault::kFail) return After(fault, result);
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) {
  Fault fault = Fault::kNone;
  if (IsBelow(to)) fault = Count(false, false);
  return fault == Fault::kFail ? -1 : After(fault, REAL(rename)(from, to));
}

int unlink(const char* path) {
  Fault fault = Fault::kNone;
  if (IsBelow(path)) fault = Count(false, false);
  return fault == Fault::kFail ? -1 : After(fault, REAL(unlink)(path));
}

int mkdir(const char* path, mode_t mode) {
  Fault fault = Fault::kNone;
  if (IsBelow(path)) fault = Count(false, false);
  return fault == Fault::kFail ? -1 : After(fault, REAL(mkdir)(path, mode));
}

}  // extern "C"
