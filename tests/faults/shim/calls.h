// Shows a program's system calls on files below a directory and on sockets to a hook, before and
// after they are made. The functions of file_calls.cc and socket_calls.cc override the C library's,
// from a preloaded library or from the program itself. The program that links them defines Before()
// and After() to decide the fate of each call.
#ifndef CBT_TESTS_FAULTS_SHIM_CALLS_H_
#define CBT_TESTS_FAULTS_SHIM_CALLS_H_

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace cbt::test {

// Properties of a call; a fault only hits calls to which it can happen.
enum Trait : unsigned {
  kOnFile = 1,
  kOnSocket = 2,
  kMovesBytes = 4,        // may move less than requested
  kInterruptible = 8,     // EINTR, without any effect
  kTakesSpace = 16,       // ENOSPC
  kTakesMemory = 32,      // ENOMEM
  kMakesDescriptor = 64,  // EMFILE
  kOnConnection = 128,    // ECONNRESET
};

struct Call {
  const char* name;
  unsigned traits;
};

// A call about to be made, or made. Fields that do not apply keep their defaults.
struct Attempt {
  const Call& call;
  int descriptor = -1;
  const char* path = nullptr;
  const char* to = nullptr;  // rename()'s target
  const void* bytes = nullptr;
  size_t size = 0;  // also for ftruncate()
  off_t offset = -1;
  int flags = 0;
  struct stat* status = nullptr;  // the answer of fstat()
};

enum class Verdict { kPass, kFail, kShort };

// kFail: errno is set and the call is not made (except close(), which closes anyway).
Verdict Before(const Attempt& attempt);
void After(const Attempt& attempt, long result);

// What is watched. The hook defines WatchedDirectory() and WatchSockets().
const char* WatchedDirectory();
bool WatchSockets();

enum class DescriptorKind : unsigned char { kNone, kFile, kSocket };
DescriptorKind KindOf(int descriptor);
void SetKind(int descriptor, DescriptorKind kind);
bool IsBelow(const char* path);

// Looked up by each thread that comes first. The guard of a static would make the others wait in
// syscall(), which is one of the functions here, and so deadlock.
template <typename Function>
Function* Real(std::atomic<void*>& known, const char* name) {
  void* real = known.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = dlsym(RTLD_NEXT, name);
    known.store(real, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function*>(real);
}
// The C library's own function.
#define CBT_REAL(name)                                    \
  ([] {                                                   \
    static constinit std::atomic<void*> known{nullptr};   \
    return cbt::test::Real<decltype(name)>(known, #name); \
  }())

// Makes a call through `run(size)`, as the hook decides if the call is watched. `failed` is the
// call's error result.
template <typename Result, typename Run>
Result Make(bool watched, const Attempt& attempt, Result failed, Run run) {
  if (!watched) return run(attempt.size);
  const Verdict verdict = Before(attempt);
  if (verdict == Verdict::kFail) return failed;
  const bool half = verdict == Verdict::kShort;
  const Result result = run(half ? (attempt.size + 1) / 2 : attempt.size);
  const int error = errno;
  After(attempt, result == failed ? -1 : (long)result);
  errno = error;
  return result;
}

// close() for files and sockets.
int CloseDescriptor(int descriptor);

}  // namespace cbt::test

#endif  // CBT_TESTS_FAULTS_SHIM_CALLS_H_
