// The messages of a stream from another server, on their way to a client of ours.
#ifndef CBT_RPC_RELAY_RELAY_FEED_H_
#define CBT_RPC_RELAY_RELAY_FEED_H_

#include <grpcpp/channel.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "rpc/access/admission.h"
#include "rpc/client/upstream_call.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/outbound/outbound_feed.h"
#include "rpc/relay/open_calls.h"
#include "rpc/relay/plugin_errors.h"
#include "rpc/relay/plugin_watch.h"
#include "rpc/transport/flat_message.h"
#include "rpc/transport/slice_pool.h"

namespace cbt::rpc {

// What all streams of a relay share; outlives them.
struct RelayPlan {
  std::shared_ptr<grpc::Channel> channel;  // to the plugin
  const Contract& upstream;
  bool check_tuples = true;
  size_t message_bytes = 0;  // of messages that are encoded anew
  std::shared_ptr<SlicePool> pool;
  OpenCalls& calls;  // on the channel
  PluginErrors errors = PluginErrors();
};

// Runs on gRPC's threads, on those of the two connections it stands between.
class RelayFeed final : public OutboundFeed,
                        public UpstreamHandler,
                        public WatchedCall,
                        public std::enable_shared_from_this<RelayFeed> {
 public:
  RelayFeed(const RelayPlan& plan, const Contract& downstream, AdmittedRequest request,
            std::shared_ptr<MessageSink> sink, std::stop_token stop,
            UpstreamCall::Deadline deadline);

  void Resume() override;
  void Close() override;

  bool OnMessage(grpc::ByteBuffer message) override;
  void OnEnd(const grpc::Status& status) override;

  void CheckPlugin(std::chrono::milliseconds limit) override;

 private:
  using Clock = std::chrono::steady_clock;

  // Between the two the plugin is to send something; outside of them the client has to take it.
  void AwaitPlugin() { awaited_since_ = Clock::now().time_since_epoch(); }
  void StopAwaiting() { awaited_since_ = Clock::duration::zero(); }

  void Begin();
  // What `message` becomes, at the end of pending_.
  absl::Status Translate(const grpc::ByteBuffer& message);
  void Reencode(const MetadataMessage& message, size_t from);
  // Hands on what is pending; true when there is room for more.
  bool HandOn();
  absl::Status Verdict(const grpc::Status& status);
  Metadata TrailingMetadata() const;

  const OpenCalls::Hold hold_;  // dies last
  const RelayPlan& plan_;
  const Contract& downstream_;
  const AdmittedRequest request_;
  // Nothing needs to be encoded anew for the sake of the contracts.
  const bool same_layout_;
  const std::shared_ptr<MessageSink> sink_;
  const std::stop_token stop_;

  bool begun_ = false;
  StreamChecker checker_;
  std::optional<StreamHeader> header_;  // of the first message that was looked at
  StreamDigest received_;               // all that the plugin sent
  StreamDigest passed_on_;
  ProofScope scope_ = ProofScope::kRelay;  // of a proof of ours
  Metadata copied_proof_;                  // of a stream of which nothing was looked at
  std::atomic<Clock::duration> awaited_since_ = Clock::duration::zero();  // zero: not awaited
  std::atomic<bool> stalled_ = false;
  MetadataMessage message_;
  FlatMessage flat_;
  bool started_ = false;        // a tuple that ends after the starting offset was seen
  uint64_t messages_ = 0;       // that were passed on
  uint64_t passed_unseen_ = 0;  // those of them that nobody looked at
  std::deque<OutMessage> pending_;
  absl::Status failure_;             // why the plugin was told to stop
  std::shared_ptr<RelayFeed> self_;  // while the call is open
  UpstreamCall call_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_RELAY_FEED_H_
