// Libraries of the system that are loaded when they are needed. Few runs of a program open an NBD
// server or a cluster, and libnbd and libcurl bring fifty other libraries with them: linked, they
// would take most of the time in which a command starts.
#ifndef CBT_BASE_SYSTEM_LIBRARY_H_
#define CBT_BASE_SYSTEM_LIBRARY_H_

#include <atomic>
#include <mutex>
#include <span>

#include "absl/status/status.h"

namespace cbt {

// A function of such a library. Its pointer has the type of the vendor's declaration:
//
//   decltype(&::nbd_create) create = nullptr;
//   const SystemFunction function = {"nbd_create", &create};
struct SystemFunction {
  const char* name;
  void* pointer;  // the address of the function pointer
};

// One library, loaded once for the life of the process. Thread-safe; meant for a global variable
// that is initialised at compile time.
class SystemLibrary {
 public:
  // All three are literals. `soname` has the version of the interface that the program was compiled
  // for: another one is another library. `needed_for` and `packages` are for the error message.
  constexpr SystemLibrary(const char* soname, const char* needed_for, const char* packages) noexcept
      : soname_(soname), needed_for_(needed_for), packages_(packages) {}
  SystemLibrary(const SystemLibrary&) = delete;
  SystemLibrary& operator=(const SystemLibrary&) = delete;

  // Loads the library, sets the pointers and calls `start` (null: nothing), unless an earlier call
  // did. Until a call succeeds the pointers must not be used. A later call tries again after an
  // error: the package may have been installed meanwhile.
  // Errors: FAILED_PRECONDITION that names the package, if the library is missing or lacks a
  // function; those of `start`.
  absl::Status Load(std::span<const SystemFunction> functions, absl::Status (*start)() = nullptr);

 private:
  absl::Status TryLoad(std::span<const SystemFunction> functions, absl::Status (*start)());
  absl::Status LoaderError() const;

  const char* const soname_;
  const char* const needed_for_;
  const char* const packages_;
  std::atomic<bool> loaded_{false};
  std::mutex mutex_;  // held while loading
};

}  // namespace cbt

#endif  // CBT_BASE_SYSTEM_LIBRARY_H_
