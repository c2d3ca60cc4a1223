// Bytes together with what keeps them alive.
#ifndef CBT_SHARED_BYTES_H_
#define CBT_SHARED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cbt/lifetime.h"

namespace cbt {

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

#endif  // CBT_SHARED_BYTES_H_
