#include "rpc/message_builder.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <limits>

namespace cbt::rpc {
namespace {

// Short slices hold their bytes inside themselves, where they would move with the struct.
constexpr size_t kMinSliceBytes = 64;

// A message of few tuples gets no more memory than it can need.
size_t SliceBytes(size_t max_tuples, size_t message_bytes) {
  const size_t most_tuples = (message_bytes - kMaxHeaderBytes) / kMaxTupleBytes;
  if (max_tuples >= most_tuples) return message_bytes;
  // EncodeTuples() wants room for a whole tuple even if it turns out short, and this leaves it.
  return std::max(kMinSliceBytes, kMaxHeaderBytes + max_tuples * kMaxTupleBytes);
}

}  // namespace

MessageBuilder::MessageBuilder(BlockMetadataType type, uint64_t capacity, uint32_t max_tuples,
                               size_t message_bytes)
    : type_(type),
      capacity_(capacity),
      max_tuples_(max_tuples == 0 ? std::numeric_limits<size_t>::max() : max_tuples),
      slice_bytes_(SliceBytes(max_tuples_, message_bytes)) {
  Begin();
}

MessageBuilder::~MessageBuilder() { grpc_slice_unref(slice_); }

void MessageBuilder::Begin() {
  slice_ = grpc_slice_malloc(slice_bytes_);
  bytes_ = EncodeHeader(type_, capacity_, GRPC_SLICE_START_PTR(slice_));
  tuples_ = 0;
}

size_t MessageBuilder::Append(std::span<const uint64_t> offsets,
                              std::span<const uint64_t> lengths) {
  const size_t count = std::min(offsets.size(), max_tuples_ - tuples_);
  const EncodedTuples done =
      EncodeTuples(offsets.first(count), lengths.first(count),
                   {GRPC_SLICE_START_PTR(slice_) + bytes_, slice_bytes_ - bytes_});
  bytes_ += done.bytes;
  tuples_ += done.tuples;
  return done.tuples;
}

bool MessageBuilder::full() const noexcept {
  return tuples_ == max_tuples_ || slice_bytes_ - bytes_ < kMaxTupleBytes;
}

grpc::ByteBuffer MessageBuilder::Take() {
  GRPC_SLICE_SET_LENGTH(slice_, bytes_);
  const grpc::Slice slice(slice_, grpc::Slice::STEAL_REF);
  grpc::ByteBuffer message(&slice, 1);
  Begin();
  return message;
}

}  // namespace cbt::rpc
