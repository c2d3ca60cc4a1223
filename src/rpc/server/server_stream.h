// One open stream on the server: passes messages from a feed to the transport, with bounded
// memory and without blocking the transport's threads.
#ifndef CBT_RPC_SERVER_SERVER_STREAM_H_
#define CBT_RPC_SERVER_SERVER_STREAM_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "base/fair_places.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"
#include "rpc/server/outbound_feed.h"
#include "rpc/server/send_budget.h"
#include "rpc/server/stream_registry.h"
#include "rpc/server/stream_telemetry.h"
#include "rpc/server/timed_call.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// Two sides share one lock. The feed makes messages while there is room for them, and pauses when
// it is full. The transport has at most one write at a time. So a client that stops reading
// holds a few messages and no thread. The room grows with what the client takes without delay
// (SendBudget).
//
// The stream is finished exactly once, as soon as no write is in flight; it does not wait for the
// feed, because a provider's call may take long. The object lives until the transport and the feed
// have released it.
//
// It is open, and holds a place among those that wait, before its request is admitted.
class ServerStream final : public CallHandler,
                           public MessageSink,
                           public TimedCall,
                           public std::enable_shared_from_this<ServerStream> {
 public:
  // `call` is valid until OnDone(); the registry must outlive the stream.
  ServerStream(ServerCall& call, StreamRegistry& registry, FairPlaces::Place place,
               const StreamOptions& options, const Telemetry& telemetry, const StreamKind& kind);

  // The registry does not take the stream, and nothing else will be called.
  void Refuse(const absl::Status& status) noexcept { watch_.End(status, EndReason::kRefused); }

  // The request is admitted: the stream is one of max_streams from now on. Call once.
  void Admit(StreamSlot slot);
  // Starts taking messages from `feed`. Call once after Admit(), unless End() is called. May come
  // late: until then the stream is open and silent.
  void Start(const std::shared_ptr<OutboundFeed>& feed);

  // Stopped when the client has disconnected or the stream ends.
  std::stop_token stop_token() const { return stop_.get_token(); }
  std::optional<std::chrono::system_clock::time_point> deadline() const { return deadline_; }
  // See ServerCall::loop().
  size_t loop() const { return loop_; }
  // See ServerCall::peer().
  const std::string& peer() const { return peer_; }

  // Takes effect after the message in flight, unless everything was sent.
  void End(absl::Status status) override;

  // Ends the call with RESOURCE_EXHAUSTED, or aborts it if that needs too much memory.
  void EndOutOfMemory() noexcept;

  Want Check() override;
  Want Offer(OutMessage message) override;
  void Announce(Metadata initial) override;
  void Complete(absl::Status status, Metadata trailing, std::optional<OutMessage> last) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  bool Ending() const override { return closed_ || forced_.has_value(); }
  void Compact() noexcept override {
    if (feed_ != nullptr && !feeding_) feed_->Compact();
  }
  Want CheckLocked();
  void Queue(OutMessage message);
  absl::Status AddProof();
  void Break();
  void Advance(std::unique_lock<std::mutex> lock);

  StreamRegistry& registry_;
  const std::string peer_;
  const std::optional<std::chrono::system_clock::time_point> deadline_;
  const size_t loop_;
  std::stop_source stop_;

  // From here on guarded by mutex_.
  FairPlaces::Place place_;             // until it is admitted
  std::optional<StreamSlot> slot_;      // from then on
  std::shared_ptr<OutboundFeed> feed_;  // null before Start() and when no longer needed
  // Made ahead, so that the feed works while the client reads. Not the transport's: End() drops
  // them, whatever the client's window is.
  std::deque<OutMessage> ready_;
  size_t in_flight_ = 0;  // bytes of the message that is being written
  SendBudget budget_;     // of ready_ and the message in flight
  Metadata trailing_;
  bool writing_ = false;
  bool feeding_ = false;                  // the feed is working
  std::optional<absl::Status> produced_;  // how the feed ended
  std::optional<absl::Status> forced_;    // how the stream ends before the feed has
  bool broken_ = false;                   // the client has disconnected: never OK
  bool closed_ = false;                   // the transport has the status, or is about to get it
  StreamTelemetry watch_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_SERVER_STREAM_H_
