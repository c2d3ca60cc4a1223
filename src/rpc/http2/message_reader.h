// Extracts messages from the bytes of a stream.
#ifndef CBT_RPC_HTTP2_MESSAGE_READER_H_
#define CBT_RPC_HTTP2_MESSAGE_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/cord.h"

namespace cbt::rpc::http2 {

// Cuts the DATA of one direction of a stream into messages, wherever frames cut it. Messages share
// the memory that they arrived in. An announced length is never allocated: memory grows with the
// bytes received. Belongs to one thread at a time.
class MessageReader {
 public:
  // Longer messages (bytes, without the prefix) are refused as soon as they are announced.
  explicit MessageReader(size_t max_message) noexcept : max_message_(max_message) {}

  // Adds the stream's next bytes. Throws std::bad_alloc, after which the stream must be abandoned.
  void Append(absl::Cord bytes);

  enum class Result {
    kMessage,     // `message` is set
    kNeedMore,    // the next message, if any, is incomplete
    kTooLong,     // it announces more than the limit
    kCompressed,  // it is compressed
    kMalformed,   // its compressed flag is neither 0 nor 1
  };

  // Moves the next message to `message`, which is otherwise unchanged. An error is sticky, because
  // the bytes that follow have no boundaries. Throws std::bad_alloc as Append() does.
  Result Next(absl::Cord& message);

  // Whether the stream may end here: no bytes are left, not even part of a prefix.
  bool AtBoundary() const noexcept { return !length_.has_value() && bytes_.empty(); }

  // Bytes that Next() has not returned.
  size_t buffered() const noexcept { return bytes_.size(); }

 private:
  Result ReadPrefix();

  const size_t max_message_;
  absl::Cord bytes_;
  std::optional<uint32_t> length_;  // of the message whose prefix was read
  Result error_ = Result::kMessage;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_MESSAGE_READER_H_
