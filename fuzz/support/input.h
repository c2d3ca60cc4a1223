// Choices from a fuzzer's bytes: numbers while there are any, then zeros.
#ifndef FUZZ_SUPPORT_INPUT_H_
#define FUZZ_SUPPORT_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cbt::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  // A little-endian number of `bytes` bytes (at most 8).
  uint64_t Take(size_t bytes) {
    uint64_t value = 0;
    const size_t count = std::min(bytes, size_);
    if (count > 0) std::memcpy(&value, data_, count);
    data_ += count;
    size_ -= count;
    return value;
  }
  bool empty() const { return size_ == 0; }

 protected:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace cbt::fuzz

#endif  // FUZZ_SUPPORT_INPUT_H_
