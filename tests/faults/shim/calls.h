// System calls of a program under test on files below a folder and on sockets, shown to a hook
// before and after they are made. The functions of file_calls.cc and socket_calls.cc stand before
// those of the C library, in a library that is preloaded or in the program itself; who links them
// says with Before() and After() what is to become of each call.
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

// What can be said of a call; a fault is for those of which it can happen.
enum Trait : unsigned {
  kOnFile = 1,
  kOnSocket = 2,
  kMovesBytes = 4,        // may move fewer than were asked for
  kInterruptible = 8,     // EINTR, and nothing was done
  kTakesSpace = 16,       // ENOSPC
  kTakesMemory = 32,      // ENOMEM
  kMakesDescriptor = 64,  // EMFILE
  kOnConnection = 128,    // ECONNRESET
};

struct Call {
  const char* name;
  unsigned traits;
};

// One call that is about to be made, or was. What does not apply is as below.
struct Attempt {
  const Call& call;
  int descriptor = -1;
  const char* path = nullptr;
  const char* to = nullptr;  // of rename()
  const void* bytes = nullptr;
  size_t size = 0;  // also of ftruncate()
  off_t offset = -1;
  int flags = 0;
  struct stat* status = nullptr;  // of fstat(), the answer
};

enum class Verdict { kPass, kFail, kShort };

// kFail: errno is set, and the call is not made (but for close(), which closes all the same).
Verdict Before(const Attempt& attempt);
void After(const Attempt& attempt, long result);

// What is watched. WatchedFolder() and WatchSockets() are the hook's.
const char* WatchedFolder();
bool WatchSockets();

enum class DescriptorKind : unsigned char { kNone, kFile, kSocket };
DescriptorKind KindOf(int descriptor);
void SetKind(int descriptor, DescriptorKind kind);
bool IsBelow(const char* path);

// Looked up by each thread that comes first: a static with a guard would wait for the other in
// syscall(), which is one of the functions here, and so for ever.
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

// Makes a call by `run(size)`, if it is watched as the hook will have it. `failed` is what it
// returns for an error.
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

// What close() does, of files and of sockets.
int CloseDescriptor(int descriptor);

}  // namespace cbt::test

#endif  // CBT_TESTS_FAULTS_SHIM_CALLS_H_
