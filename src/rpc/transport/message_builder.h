// Builds response messages in the memory that they are sent from.
#ifndef CBT_RPC_TRANSPORT_MESSAGE_BUILDER_H_
#define CBT_RPC_TRANSPORT_MESSAGE_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/strings/cord.h"
#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "rpc/transport/slice_pool.h"

namespace cbt::rpc {

// Builds one message at a time, encoded directly into one buffer. Only messages with few tuples are
// copied, out of a larger buffer.
class MessageBuilder {
 public:
  // `max_tuples` (0: no limit) and `message_bytes` (at least kMaxHeaderBytes + kMaxTupleBytes)
  // limit each message; each contains `type` and `capacity` (bytes). The pool's buffers have at
  // least `message_bytes`.
  MessageBuilder(std::shared_ptr<SlicePool> pool, BlockMetadataType type, uint64_t capacity,
                 uint32_t max_tuples, size_t message_bytes);
  ~MessageBuilder() = default;
  MessageBuilder(const MessageBuilder&) = delete;
  MessageBuilder& operator=(const MessageBuilder&) = delete;

  // Appends tuples (two spans of equal size, in bytes) until the message is full; returns their
  // number, at least one unless full() or there are none.
  size_t Append(std::span<const uint64_t> offsets, std::span<const uint64_t> lengths);

  // Number of tuples in the message so far.
  size_t tuples() const noexcept { return tuples_; }
  bool full() const noexcept;

  // Returns the message, possibly without tuples, and starts the next one. Holds no memory until
  // the next Append().
  absl::Cord Take();

 private:
  void BeginIfNeeded();

  const std::shared_ptr<SlicePool> pool_;
  const BlockMetadataType type_;
  const uint64_t capacity_;
  const size_t max_tuples_;
  const size_t buffer_bytes_;
  SlicePool::Buffer buffer_;
  size_t bytes_ = 0;
  size_t tuples_ = 0;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_MESSAGE_BUILDER_H_
