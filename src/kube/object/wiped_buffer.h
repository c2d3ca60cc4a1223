// Bytes that leave no copies in freed memory.
#ifndef CBT_KUBE_OBJECT_WIPED_BUFFER_H_
#define CBT_KUBE_OBJECT_WIPED_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "kube/object/json.h"

namespace cbt::kube {

// Grows as it is appended to. Answers may hold secrets, so what it outgrows is wiped.
class WipedBuffer {
 public:
  WipedBuffer() = default;
  ~WipedBuffer() { json::WipingAllocator::Free(bytes_); }
  WipedBuffer(WipedBuffer&& other) noexcept { *this = std::move(other); }
  WipedBuffer& operator=(WipedBuffer&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  WipedBuffer(const WipedBuffer&) = delete;
  WipedBuffer& operator=(const WipedBuffer&) = delete;

  void Append(std::string_view bytes) {
    if (bytes.empty()) return;
    if (bytes.size() > capacity_ - size_) {
      const size_t larger = std::max({size_ + bytes.size(), 2 * capacity_, kFirst});
      bytes_ = static_cast<char*>(json::WipingAllocator::Realloc(bytes_, size_, larger));
      capacity_ = larger;
    }
    std::memcpy(bytes_ + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  // Removes bytes at the front.
  void Drop(size_t count) noexcept {
    size_ -= count;
    if (size_ != 0) std::memmove(bytes_, bytes_ + count, size_);
  }
  void Clear() noexcept { size_ = 0; }

  std::string_view view() const noexcept { return {bytes_ == nullptr ? "" : bytes_, size_}; }
  size_t size() const noexcept { return size_; }

 private:
  static constexpr size_t kFirst = 1024;

  char* bytes_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_OBJECT_WIPED_BUFFER_H_
