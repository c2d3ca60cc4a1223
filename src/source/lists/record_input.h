// Reads small binary records from a stream without a call to it for each.
#ifndef CBT_SOURCE_LISTS_RECORD_INPUT_H_
#define CBT_SOURCE_LISTS_RECORD_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cbt/source/byte_stream.h"
#include "cbt/units.h"

namespace cbt {

class RecordInput {
 public:
  explicit RecordInput(ByteStream& stream) : stream_(stream), buffer_(kBufferBytes) {}

  // The next `count` bytes (at most kBufferBytes), valid until the next call; null if the stream
  // ends earlier or failed: see Failure().
  const uint8_t* Take(size_t count) {
    if (end_ - at_ < count && !Fill(count)) return nullptr;
    const uint8_t* const bytes = buffer_.data() + at_;
    at_ += count;
    return bytes;
  }

  // The bytes already in the buffer, and their number; consumes nothing.
  const uint8_t* waiting() const noexcept { return buffer_.data() + at_; }
  size_t waiting_bytes() const noexcept { return end_ - at_; }

  // Skips `count` bytes; false as above.
  bool Skip(uint64_t count) {
    const uint64_t waiting = end_ - at_;
    if (count <= waiting) {
      at_ += static_cast<size_t>(count);
      return true;
    }
    at_ = end_;
    status_ = stream_.Skip(count - waiting);
    return status_.ok();
  }

  // True if nothing follows. A stream that failed is not at its end.
  bool AtEnd() { return at_ == end_ && !Fill(1) && status_.ok(); }

  // The byte offset in the stream.
  uint64_t position() const noexcept { return stream_.position() - (end_ - at_); }

  // Why a call failed: the error of the stream, or DATA_LOSS because it ended.
  absl::Status Failure() const {
    if (!status_.ok()) return status_;
    return absl::DataLossError(
        absl::StrCat(stream_.label(), ": ends early, at byte ", stream_.position()));
  }

  const std::string& label() const noexcept { return stream_.label(); }

  static constexpr size_t kBufferBytes = 256 * kKiB;

 private:
  bool Fill(size_t count) {
    std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
    end_ -= at_;
    at_ = 0;
    while (end_ < count && status_.ok()) {
      const absl::StatusOr<size_t> got = stream_.Read(std::span(buffer_).subspan(end_));
      if (!got.ok()) {
        status_ = got.status();
      } else if (*got == 0) {
        break;
      } else {
        end_ += *got;
      }
    }
    return end_ >= count && status_.ok();
  }

  ByteStream& stream_;
  std::vector<uint8_t> buffer_;
  size_t at_ = 0;
  size_t end_ = 0;
  absl::Status status_;
};

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_RECORD_INPUT_H_
