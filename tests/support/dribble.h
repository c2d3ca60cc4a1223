// A stream that returns a few bytes at a time, as pipes do.
#ifndef CBT_TESTS_SUPPORT_DRIBBLE_H_
#define CBT_TESTS_SUPPORT_DRIBBLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "cbt/source/byte_stream.h"

namespace cbt::test {

class Dribble final : public ByteStream {
 public:
  // Returns at most `most` bytes at once; errors name it `label`.
  Dribble(std::string text, size_t most, const std::string& label)
      : ByteStream(label), text_(std::move(text)), most_(most) {}

 private:
  absl::StatusOr<size_t> DoRead(std::span<uint8_t> out) override {
    const size_t count = std::min({out.size(), most_, text_.size() - at_});
    std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(at_), count, out.begin());
    at_ += count;
    return count;
  }

  const std::string text_;
  const size_t most_;
  size_t at_ = 0;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_DRIBBLE_H_
