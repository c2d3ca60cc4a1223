// Who keeps memory alive. One rule for everything that is public:
//
// - What outlives the call that makes it keeps what it reads. Factories of cursors and streams take
//   owners: a vector that is moved in, SharedBytes, a Bitmap, a ChangeMap, a smart pointer.
// - What borrows says so in its name: types end in View, factories begin with MakeBorrowed. The
//   caller then keeps the memory, unchanged, as long as the view and everything made from it. A
//   temporary that owns its bytes can't be borrowed; it does not compile.
// - Spans, references and string views in other functions are used during the call only.
// - Executors, observers, providers and stores belong to the program: they are passed by reference
//   or pointer, and must outlive what they are given to.
#ifndef CBT_LIFETIME_H_
#define CBT_LIFETIME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cbt/version.h"

// On a parameter, or behind a member function: the result points into it. Compilers that know the
// attribute (clang) then warn about results that outlive it.
#if defined(__has_cpp_attribute)
#if __has_cpp_attribute(clang::lifetimebound)
#define CBT_LIFETIME_BOUND [[clang::lifetimebound]]
#endif
#endif
#ifndef CBT_LIFETIME_BOUND
#define CBT_LIFETIME_BOUND
#endif

namespace cbt {

// A temporary that owns the bytes that it converts to, such as a vector (T as a forwarding
// reference deduces it). Overloads for it are deleted where a function borrows.
template <typename T>
concept TemporaryBytes =
    !std::is_lvalue_reference_v<T> && !std::is_trivially_destructible_v<std::remove_cvref_t<T>> &&
    std::is_convertible_v<T, std::span<const uint8_t>>;

// Cheap to copy: copies share the bytes, which live until the last copy is gone. They must not
// change meanwhile.
class SharedBytes {
 public:
  // No bytes.
  SharedBytes() = default;

  // The bytes of `values` in the order of memory: move the vector in, or it is copied.
  template <typename T>
  requires(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>)
      SharedBytes(std::vector<T> values) {  // NOLINT(google-explicit-constructor)
    auto kept = std::make_shared<const std::vector<T>>(std::move(values));
    bytes_ = {reinterpret_cast<const uint8_t*>(kept->data()), kept->size() * sizeof(T)};
    owner_ = std::move(kept);
  }
  SharedBytes(std::string text) {  // NOLINT(google-explicit-constructor)
    auto kept = std::make_shared<const std::string>(std::move(text));
    bytes_ = {reinterpret_cast<const uint8_t*>(kept->data()), kept->size()};
    owner_ = std::move(kept);
  }

  // `bytes` are valid as long as `owner` exists: a mapping, or a buffer of another library. Without
  // an owner there are no bytes.
  SharedBytes(std::shared_ptr<const void> owner, std::span<const uint8_t> bytes)
      : owner_(std::move(owner)), bytes_(owner_ != nullptr ? bytes : std::span<const uint8_t>()) {}
  SharedBytes(std::nullptr_t, std::span<const uint8_t>) = delete;

  // Valid as long as this object or a copy of it.
  std::span<const uint8_t> bytes() const noexcept CBT_LIFETIME_BOUND { return bytes_; }
  const uint8_t* data() const noexcept CBT_LIFETIME_BOUND { return bytes_.data(); }
  size_t size() const noexcept { return bytes_.size(); }
  bool empty() const noexcept { return bytes_.empty(); }

  const std::shared_ptr<const void>& owner() const noexcept CBT_LIFETIME_BOUND { return owner_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const uint8_t> bytes_;
};

}  // namespace cbt

#endif  // CBT_LIFETIME_H_
