// What every function of the C interface does at the border: nothing is thrown across it, a failure
// becomes a code and an error, handles are checked.
#ifndef CBT_C_BORDER_H_
#define CBT_C_BORDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "cbt/c/base.h"

namespace cbt::c {

// Turns a failure into a code and, if `error` is not null, an error.
cbt_code Fail(const absl::Status& status, cbt_error** error) noexcept;
// The same for the exception that is being handled.
cbt_code FailCaught(cbt_error** error) noexcept;

// Runs `body`, which returns an absl::Status and may throw.
template <typename Body>
cbt_code AtBorder(cbt_error** error, const Body& body) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    const absl::Status status = body();
    if (status.ok()) [[likely]]
      return CBT_OK;
    return Fail(status, error);
  } catch (...) {
    return FailCaught(error);
  }
}

// What a callback returned: consumes `error`. A callback that sets an error and returns CBT_OK has
// succeeded.
absl::Status FromCallback(cbt_code code, cbt_error* error);

// Calls `release(owner)`; what it throws is dropped.
void Release(void (*release)(void*), void* owner) noexcept;

absl::Status IsNull(std::string_view name);

// --- Handles
//
// Every handle has one of these as its base. Where CBT_C_CHECKED is defined (debug builds and
// fuzzers), a list of live handles shows which were freed, or never made, or are of another kind:
// memory is used again.
class Handle {
 public:
  // What kind of handle T is: the address counts.
  template <typename T>
  static constexpr char kKind = 0;

  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

#ifdef CBT_C_CHECKED
  static bool IsLive(const Handle* handle, const char* kind);

 protected:
  explicit Handle(const char* kind);
  ~Handle();
#else
  static bool IsLive(const Handle*, const char*) noexcept { return true; }

 protected:
  explicit Handle(const char*) noexcept {}
  ~Handle() = default;
#endif
};

absl::Status IsFreed(std::string_view name);

template <typename T>
absl::Status Check(const T* handle, std::string_view name) {
  if (handle == nullptr) [[unlikely]]
    return IsNull(name);
  if (!Handle::IsLive(handle, &Handle::kKind<T>)) [[unlikely]]
    return IsFreed(name);
  return absl::OkStatus();
}

// For functions that can't fail.
template <typename T>
bool Usable(const T* handle) noexcept {
  return handle != nullptr && Handle::IsLive(handle, &Handle::kKind<T>);
}

template <typename T>
void Free(T* handle) noexcept {
  if (Usable(handle)) delete handle;
}

// A handle that one call at a time may use.
class Exclusive : public Handle {
 protected:
  using Handle::Handle;
  ~Exclusive() = default;

 public:
  // The right to use it; false if another call has it.
  class Use {
   public:
    explicit Use(Exclusive& handle) noexcept
        : busy_(handle.busy_), ours_(!busy_.exchange(true, std::memory_order_acquire)) {}
    ~Use() {
      if (ours_) busy_.store(false, std::memory_order_release);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const noexcept { return ours_; }

   private:
    std::atomic<bool>& busy_;
    const bool ours_;
  };

 private:
  std::atomic<bool> busy_ = false;
};

absl::Status IsBusy(std::string_view name);

// --- Structures with a struct_size

absl::Status BadSize(std::string_view name);
absl::Status TooNew(std::string_view name);

// Copies `from` (null: all defaults) to `to`. A member that this library does not know must be 0.
template <typename T>
absl::Status ReadOptions(const T* from, std::string_view name, T& to) {
  static_assert(std::is_trivially_copyable_v<T>);
  to = T{};
  if (from == nullptr) return absl::OkStatus();
  uint64_t size = 0;
  std::memcpy(&size, from, sizeof(size));
  // Sizes of future versions are small too: anything else is uninitialised memory.
  constexpr uint64_t kMaxSize = 4096;
  // A size that ends within a member would leave half of a pointer.
  if (size < sizeof(size) || size > kMaxSize || size % alignof(T) != 0) return BadSize(name);
  std::memcpy(&to, from, size < sizeof(T) ? size : sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (uint64_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) return TooNew(name);
  }
  return absl::OkStatus();
}

// Copies the members of `from` that the caller's structure has; its struct_size stays.
template <typename T>
absl::Status WriteResult(T from, std::string_view name, T* to) {
  uint64_t size = 0;
  std::memcpy(&size, to, sizeof(size));
  constexpr uint64_t kMaxSize = 4096;
  if (size < sizeof(size) || size > kMaxSize || size % alignof(T) != 0) return BadSize(name);
  from.struct_size = size;
  std::memcpy(to, &from, size < sizeof(T) ? size : sizeof(T));
  return absl::OkStatus();
}

inline std::string Text(const char* text) { return text == nullptr ? std::string() : text; }

}  // namespace cbt::c

struct cbt_error {
  cbt_code code = CBT_UNKNOWN;
  std::string message;
};

#endif  // CBT_C_BORDER_H_
