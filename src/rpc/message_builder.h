// Builds response messages in the memory that gRPC sends.
#ifndef CBT_RPC_MESSAGE_BUILDER_H_
#define CBT_RPC_MESSAGE_BUILDER_H_

#include <grpc/slice.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "cbt/wire.h"

namespace cbt::rpc {

// One message after the other, each encoded straight into one slice: the tuples are written once
// and never copied.
class MessageBuilder {
 public:
  // `max_tuples` (0: no limit) and `message_bytes` (at least kMaxHeaderBytes + kMaxTupleBytes) cap
  // each message; `type` and `capacity` (bytes) stand in each.
  MessageBuilder(BlockMetadataType type, uint64_t capacity, uint32_t max_tuples,
                 size_t message_bytes);
  ~MessageBuilder();
  MessageBuilder(const MessageBuilder&) = delete;
  MessageBuilder& operator=(const MessageBuilder&) = delete;

  // Appends tuples (two spans of one size, bytes) until the message is full; returns how many.
  // Takes at least one if there is one, unless full().
  size_t Append(std::span<const uint64_t> offsets, std::span<const uint64_t> lengths);

  // Tuples in the message so far.
  size_t tuples() const noexcept { return tuples_; }
  bool full() const noexcept;

  // The message built so far, possibly without tuples; a new one begins.
  grpc::ByteBuffer Take();

 private:
  void Begin();

  const BlockMetadataType type_;
  const uint64_t capacity_;
  const size_t max_tuples_;
  const size_t slice_bytes_;
  grpc_slice slice_;
  size_t bytes_ = 0;
  size_t tuples_ = 0;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_MESSAGE_BUILDER_H_
