// The interface between the producer of a stream's messages and the transport.
#ifndef CBT_RPC_SERVER_OUTBOUND_FEED_H_
#define CBT_RPC_SERVER_OUTBOUND_FEED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "rpc/contract/metadata.h"

namespace cbt::rpc {

// One encoded message and its contents in figures.
struct OutMessage {
  absl::Cord bytes = {};
  uint64_t tuples = 0;
  uint64_t reported = 0;  // bytes of the volume
};

// The transport's side: accepts messages. Thread safe.
class MessageSink {
 public:
  virtual ~MessageSink() = default;

  enum class Want {
    kMore,     // continue
    kPause,    // stop; OutboundFeed::Resume() is called when there is room again
    kNothing,  // the stream is over: release everything; Resume() is not called again
  };

  // What a working feed should do next. After kPause and kNothing it must touch nothing that
  // Resume() touches: another thread may already run Resume().
  virtual Want Check() = 0;

  // Accepts a message, and returns the same as Check(). Throws std::bad_alloc if there is no memory
  // for it; the feed is still working then, and may only Complete() with an error.
  virtual Want Offer(OutMessage message) = 0;

  // Initial metadata. Call at most once, before the first Offer().
  virtual void Announce(Metadata initial) = 0;

  // The feed is done: after all offered messages, and `last` if set, have been sent, the stream
  // ends with `status`, and with `trailing` if that is OK. The feed is not called again. If there
  // is no memory for `last` or `trailing`, the stream ends with RESOURCE_EXHAUSTED.
  virtual void Complete(absl::Status status, Metadata trailing, std::optional<OutMessage> last) = 0;
};

// Produces messages. Referenced by the transport until the stream is over; references the transport
// only while it may have messages for it.
class OutboundFeed {
 public:
  virtual ~OutboundFeed() = default;

  // Produces messages until the sink wants no more. Never blocks: the work is done elsewhere.
  // Called once at the start, and after each kPause when there is room again. A feed that runs out
  // of memory completes the stream.
  virtual void Resume() = 0;

  // The stream ended while the feed was not working: releases everything. Never blocks.
  virtual void Close() = 0;

  // The client has taken nothing for a while, and the feed is not working: releases memory that
  // only makes it fast. Resume() is not called before this returns. Never blocks.
  virtual void Compact() noexcept {}
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_OUTBOUND_FEED_H_
