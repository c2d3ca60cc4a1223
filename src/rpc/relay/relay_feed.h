// Forwards the messages of a plugin's stream to a client.
#ifndef CBT_RPC_RELAY_RELAY_FEED_H_
#define CBT_RPC_RELAY_RELAY_FEED_H_

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
#include "absl/strings/cord.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "rpc/access/admission.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/relay/open_calls.h"
#include "rpc/relay/plugin_errors.h"
#include "rpc/relay/plugin_watch.h"
#include "rpc/server/outbound_feed.h"
#include "rpc/transport/client_call.h"
#include "rpc/transport/flat_message.h"
#include "rpc/transport/slice_pool.h"

namespace cbt::rpc {

// Shared by all streams of a relay, and outlives them.
struct RelayPlan {
  const Contract& upstream;
  bool check_tuples = true;
  bool require_message = false;  // OK without a message is an error of the plugin
  size_t message_bytes = 0;      // of reencoded messages
  std::shared_ptr<SlicePool> pool;
  OpenCalls& calls;  // of the plugin
  PluginErrors errors = PluginErrors();
};

// Runs on the transport's threads of both connections, which should be the same one.
class RelayFeed final : public OutboundFeed,
                        public ClientCallHandler,
                        public WatchedCall,
                        public std::enable_shared_from_this<RelayFeed> {
 public:
  // `plugin` must outlive the plan's open calls.
  RelayFeed(const RelayPlan& plan, Channel& plugin, const Contract& downstream,
            AdmittedRequest request, std::shared_ptr<MessageSink> sink, std::stop_token stop,
            Deadline deadline);

  void Resume() override;
  void Close() override;

  bool OnMessage(absl::Cord message) override;
  void OnEnd(const absl::Status& status) override;

  void CheckPlugin(std::chrono::milliseconds limit) override;

 private:
  using Clock = std::chrono::steady_clock;

  // Between these two calls the relay waits for the plugin, otherwise for the client.
  void AwaitPlugin() { awaited_since_ = Clock::now().time_since_epoch(); }
  void StopAwaiting() { awaited_since_ = Clock::duration::zero(); }

  void Begin();
  // What the plugin says of its data, once. Errors: INTERNAL if it contradicts itself.
  absl::Status Announce();
  // Appends the translation of `message` to pending_.
  absl::Status Translate(const absl::Cord& message);
  void Reencode(const MetadataMessage& message, size_t from);
  // Forwards pending messages; true if there is room for more.
  bool Forward();
  const StreamDigest& passed_on() const { return passes_all_ ? received_ : passed_on_; }
  absl::Status Verdict(const absl::Status& status);
  // The message that the plugin has left out of an empty answer; empty if it can't be made up for.
  std::optional<OutMessage> MessageLeftOut();
  Metadata TrailingMetadata() const;

  const OpenCalls::Hold hold_;  // destroyed last
  const RelayPlan& plan_;
  const Contract& downstream_;
  const AdmittedRequest request_;
  // The two contracts encode messages in the same way.
  const bool same_layout_;
  const std::shared_ptr<MessageSink> sink_;
  const std::stop_token stop_;

  bool begun_ = false;
  StreamChecker checker_;
  std::optional<StreamHeader> header_;  // of the first decoded message
  StreamDigest received_;               // of everything that the plugin sent
  StreamDigest passed_on_;              // if that is not the same
  bool passes_all_ = true;
  ProofScope scope_ = ProofScope::kRelay;  // of the relay's own proof
  Metadata copied_proof_;                  // of a stream that was not decoded
  std::atomic<Clock::duration> awaited_since_ = Clock::duration::zero();  // zero: not awaited
  std::atomic<bool> stalled_ = false;
  MetadataMessage message_;
  FlatMessage flat_;
  bool started_ = false;        // a tuple that ends after the starting offset was seen
  uint64_t messages_ = 0;       // forwarded
  uint64_t passed_unseen_ = 0;  // forwarded without being decoded
  std::deque<OutMessage> pending_;
  absl::Status failure_;             // why the plugin's call was cancelled
  std::shared_ptr<RelayFeed> self_;  // while the call is open
  const std::unique_ptr<ClientCall> call_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_RELAY_FEED_H_
