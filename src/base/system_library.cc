#include "base/system_library.h"

#include <dlfcn.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace cbt {

absl::Status SystemLibrary::Load(std::span<const SystemFunction> functions,
                                 absl::Status (*start)()) {
  if (loaded_.load(std::memory_order_acquire)) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  if (loaded_.load(std::memory_order_relaxed)) return absl::OkStatus();
  absl::Status status = TryLoad(functions, start);
  if (status.ok()) loaded_.store(true, std::memory_order_release);
  return status;
}

absl::Status SystemLibrary::TryLoad(std::span<const SystemFunction> functions,
                                    absl::Status (*start)()) {
  // A program that links the library itself gets the copy that it has. Names stay local, so that
  // two libraries that depend on different versions of a third one don't meet.
  void* const library = dlopen(soname_, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return LoaderError();
  for (const SystemFunction& function : functions) {
    void* const address = dlsym(library, function.name);
    if (address == nullptr) {
      absl::Status status = LoaderError();
      dlclose(library);
      return status;
    }
    // POSIX gives functions and data pointers of one size, C++ has no cast between them.
    static_assert(sizeof(address) == sizeof(void (*)()));
    std::memcpy(function.pointer, &address, sizeof(address));
  }
  // From here on the library stays: it may have threads, and handlers for the process's end.
  return start == nullptr ? absl::OkStatus() : start();
}

absl::Status SystemLibrary::LoaderError() const {
  const char* const why =
      dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread, in glibc and musl
  return absl::FailedPreconditionError(absl::StrCat(needed_for_, " need ", soname_, ": ",
                                                    why == nullptr ? "not usable" : why,
                                                    "; install the package ", packages_));
}

}  // namespace cbt
