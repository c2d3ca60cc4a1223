// The bytes of a message as one contiguous span, in reused memory.
#ifndef CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_
#define CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/cord.h"

namespace cbt::rpc {

// Belongs to one thread at a time.
class FlatMessage {
 public:
  // Valid until the next call, and while `message` is unchanged. Copies only a message in several
  // pieces. Throws std::bad_alloc.
  std::span<const uint8_t> Of(const absl::Cord& message);

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_
