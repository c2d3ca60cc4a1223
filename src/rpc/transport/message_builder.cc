#include "rpc/transport/message_builder.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace cbt::rpc {
namespace {

// A message with few tuples gets no more memory than it may need.
size_t BufferBytes(size_t max_tuples, size_t message_bytes) {
  const size_t most_tuples = (message_bytes - kMaxHeaderBytes) / kMaxTupleBytes;
  if (max_tuples >= most_tuples) return message_bytes;
  // EncodeTuples() needs room for a tuple of the largest size.
  return kMaxHeaderBytes + max_tuples * kMaxTupleBytes;
}

}  // namespace

MessageBuilder::MessageBuilder(std::shared_ptr<SlicePool> pool, BlockMetadataType type,
                               uint64_t capacity, uint32_t max_tuples, size_t message_bytes)
    : pool_(std::move(pool)),
      type_(type),
      capacity_(capacity),
      max_tuples_(max_tuples == 0 ? std::numeric_limits<size_t>::max() : max_tuples),
      buffer_bytes_(BufferBytes(max_tuples_, message_bytes)) {}

void MessageBuilder::BeginIfNeeded() {
  if (buffer_.data() != nullptr) return;
  buffer_ = pool_->Take(buffer_bytes_);
  bytes_ = EncodeHeader(type_, capacity_, buffer_.data());
  tuples_ = 0;
}

size_t MessageBuilder::Append(std::span<const uint64_t> offsets,
                              std::span<const uint64_t> lengths) {
  BeginIfNeeded();
  const size_t count = std::min(offsets.size(), max_tuples_ - tuples_);
  const EncodedTuples done = EncodeTuples(offsets.first(count), lengths.first(count),
                                          {buffer_.data() + bytes_, buffer_bytes_ - bytes_});
  bytes_ += done.bytes;
  tuples_ += done.tuples;
  return done.tuples;
}

bool MessageBuilder::full() const noexcept {
  return tuples_ == max_tuples_ || buffer_bytes_ - bytes_ < kMaxTupleBytes;
}

absl::Cord MessageBuilder::Take() {
  BeginIfNeeded();
  absl::Cord message = std::move(buffer_).ToCord(bytes_);
  bytes_ = tuples_ = 0;
  return message;
}

}  // namespace cbt::rpc
