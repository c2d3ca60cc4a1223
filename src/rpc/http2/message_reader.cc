#include "rpc/http2/message_reader.h"

#include <utility>

#include "rpc/http2/protocol.h"

namespace cbt::rpc::http2 {

void MessageReader::Append(absl::Cord bytes) {
  if (bytes_.empty()) {
    bytes_ = std::move(bytes);
  } else {
    bytes_.Append(std::move(bytes));
  }
}

// Requires kPrefixBytes.
MessageReader::Result MessageReader::ReadPrefix() {
  unsigned char prefix[kPrefixBytes];
  size_t at = 0;
  for (auto c = bytes_.char_begin(); at < kPrefixBytes; ++c) {
    prefix[at++] = static_cast<unsigned char>(*c);
  }
  if (prefix[0] > 1) return Result::kMalformed;
  if (prefix[0] == 1) return Result::kCompressed;
  const uint32_t length = uint32_t{prefix[1]} << 24 | uint32_t{prefix[2]} << 16 |
                          uint32_t{prefix[3]} << 8 | uint32_t{prefix[4]};
  if (length > max_message_) return Result::kTooLong;
  bytes_.RemovePrefix(kPrefixBytes);
  length_ = length;
  return Result::kMessage;
}

MessageReader::Result MessageReader::Next(absl::Cord& message) {
  if (error_ != Result::kMessage) return error_;
  if (!length_.has_value()) {
    if (bytes_.size() < kPrefixBytes) return Result::kNeedMore;
    if (const Result result = ReadPrefix(); result != Result::kMessage) return error_ = result;
  }
  if (bytes_.size() < *length_) return Result::kNeedMore;
  if (bytes_.size() == *length_) {
    message = std::exchange(bytes_, absl::Cord());
  } else {
    message = bytes_.Subcord(0, *length_);
    bytes_.RemovePrefix(*length_);
  }
  length_.reset();
  return Result::kMessage;
}

}  // namespace cbt::rpc::http2
