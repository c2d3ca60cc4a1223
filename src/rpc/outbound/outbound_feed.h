// Between whatever makes the messages of a stream and the transport that sends them.
#ifndef CBT_RPC_OUTBOUND_OUTBOUND_FEED_H_
#define CBT_RPC_OUTBOUND_OUTBOUND_FEED_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rpc/contract/metadata.h"

namespace cbt::rpc {

// One encoded message and what is in it.
struct OutMessage {
  grpc::ByteBuffer bytes = {};
  uint64_t tuples = 0;
  uint64_t reported = 0;  // bytes of the volume
};

// The transport's side: takes messages. Thread safe.
class MessageSink {
 public:
  virtual ~MessageSink() = default;

  enum class Want {
    kMore,     // go on
    kPause,    // stop; OutboundFeed::Resume() is called when there is room again
    kNothing,  // the stream is over: let go of everything, Resume() won't come
  };

  // What a feed at work should do next. After kPause and kNothing it is no longer at work and must
  // touch nothing that Resume() touches: another thread may be in there already.
  virtual Want Check() = 0;

  // Takes a message, and answers as Check(). Throws std::bad_alloc when it can't be kept; the feed
  // is still at work then, and all it may do is Complete() with an error.
  virtual Want Offer(OutMessage message) = 0;

  // Sent ahead of the first message; call before the first Offer(), or never.
  virtual void Announce(Metadata initial) = 0;

  // The feed is done: once what was offered has been sent, and `last` if there is one, the stream
  // ends with `status`, and with `trailing` if that is OK. The feed is not called any more. Where
  // there is no memory for `last` or `trailing` the stream ends with RESOURCE_EXHAUSTED instead.
  virtual void Complete(absl::Status status, Metadata trailing, std::optional<OutMessage> last) = 0;
};

// Makes messages. Held by the transport until the stream is over; holds the transport only as long
// as it may have something for it.
class OutboundFeed {
 public:
  virtual ~OutboundFeed() = default;

  // Makes messages until the sink wants no more. Never blocks: the work is done elsewhere. Called
  // once at first and then after each kPause when there is room again. A feed that has no memory to
  // go on completes the stream.
  virtual void Resume() = 0;

  // The stream is over while the feed was not at work: lets go of everything. Never blocks.
  virtual void Close() = 0;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_OUTBOUND_OUTBOUND_FEED_H_
