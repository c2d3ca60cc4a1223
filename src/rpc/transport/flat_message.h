// The bytes of a message as one contiguous span, in reused memory; and response messages, decoded
// where they lie.
#ifndef CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_
#define CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "cbt/wire/message.h"

namespace cbt::rpc {

// Belongs to one thread at a time.
class FlatMessage {
 public:
  // Valid until the next call, and while `message` is unchanged. Copies only a message in several
  // pieces. Throws std::bad_alloc.
  std::span<const uint8_t> Of(const absl::Cord& message);

  // Decodes a response message as DecodeMetadataMessage() does. Copies only messages in several
  // pieces that are not in the form that encoders write, and tuples that lie in two pieces. Throws
  // std::bad_alloc.
  absl::Status Decode(const absl::Cord& message, MetadataMessage& decoded);

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_
