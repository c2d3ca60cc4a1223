// Builds response messages in the memory that gRPC sends.
#ifndef CBT_RPC_TRANSPORT_MESSAGE_BUILDER_H_
#define CBT_RPC_TRANSPORT_MESSAGE_BUILDER_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cbt/metadata_type.h"
#include "cbt/wire/message.h"
#include "rpc/transport/slice_pool.h"

namespace cbt::rpc {

// One message after the other, each encoded straight into one slice. Only messages of few tuples
// are copied once more, out of a buffer for many.
class MessageBuilder {
 public:
  // `max_tuples` (0: no limit) and `message_bytes` (at least kMaxHeaderBytes + kMaxTupleBytes) cap
  // each message; `type` and `capacity` (bytes) stand in each. The pool's buffers have at least
  // `message_bytes`.
  MessageBuilder(std::shared_ptr<SlicePool> pool, BlockMetadataType type, uint64_t capacity,
                 uint32_t max_tuples, size_t message_bytes);
  ~MessageBuilder() = default;
  MessageBuilder(const MessageBuilder&) = delete;
  MessageBuilder& operator=(const MessageBuilder&) = delete;

  // Appends tuples (two spans of one size, bytes) until the message is full; returns how many.
  // Takes at least one if there is one, unless full().
  size_t Append(std::span<const uint64_t> offsets, std::span<const uint64_t> lengths);

  // Tuples in the message so far.
  size_t tuples() const noexcept { return tuples_; }
  bool full() const noexcept;

  // The message built so far, possibly without tuples; the next one begins. Between them no memory
  // is held.
  grpc::ByteBuffer Take();

 private:
  void BeginIfNeeded();

  const std::shared_ptr<SlicePool> pool_;
  const BlockMetadataType type_;
  const uint64_t capacity_;
  const size_t max_tuples_;
  const size_t slice_bytes_;
  SlicePool::Buffer buffer_;
  size_t bytes_ = 0;
  size_t tuples_ = 0;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_MESSAGE_BUILDER_H_
