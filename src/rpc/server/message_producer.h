// Produces the messages of one stream: everything that may block, and nothing of the transport.
#ifndef CBT_RPC_SERVER_MESSAGE_PRODUCER_H_
#define CBT_RPC_SERVER_MESSAGE_PRODUCER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/batch.h"
#include "cbt/cursor.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "rpc/access/admission.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/server/outbound_feed.h"
#include "rpc/server/packed_extents.h"
#include "rpc/transport/message_builder.h"

namespace cbt::rpc {

// The source of a request: the provider's cursor, checked, reshaped by the options and positioned
// at the starting offset. Used for streams and for pages.
struct ShapedCursor {
  std::shared_ptr<const void> keep_alive;  // destroyed last
  std::unique_ptr<ExtentCursor> cursor;
  BlockMetadataType type = BlockMetadataType::kUnknown;
  uint64_t capacity = 0;
  StreamSummary summary = {};
  std::function<bool()> proven = {};
  std::string version = {};  // from SourceVersion()
  bool may_change_unseen = false;
  bool never_blocks = false;
};
// Errors: those of the provider and its cursor, OUT_OF_RANGE for an offset past the capacity,
//         INTERNAL if the provider breaks its contract.
absl::StatusOr<ShapedCursor> OpenShapedCursor(SnapshotProvider& provider,
                                              const AdmittedRequest& request,
                                              const StreamContext& context,
                                              const StreamShape& shape);

// Opens the source of a request and turns its extents into messages. Not thread safe, but different
// threads may call it in turn.
class MessageProducer {
 public:
  using Clock = std::chrono::steady_clock;

  // The contract and the provider must outlive the producer.
  MessageProducer(const Contract& contract, SnapshotProvider& provider, AdmittedRequest request,
                  const StreamOptions& options, std::shared_ptr<SlicePool> pool,
                  std::optional<std::chrono::system_clock::time_point> deadline);

  enum class Outcome {
    kMessage,   // send `message`; call again
    kYield,     // no message yet, and the time is up; call again
    kComplete,  // everything was returned; `message`, if it has a value, is the last
  };

  // Works until a message is ready, the stream is complete, or `yield_at` has passed. Announces the
  // initial metadata to `sink` before the first message.
  // Errors: CANCELLED if `stop` was requested; those of the provider and its cursor; INTERNAL if
  //         they break their contract or throw, RESOURCE_EXHAUSTED if memory runs out. Tuples found
  //         before an error are returned before it, unless something threw.
  absl::StatusOr<Outcome> Run(const std::stop_token& stop, Clock::time_point yield_at,
                              MessageSink& sink, std::optional<OutMessage>& message);

  // Releases the memory of the batch and packs the tuples in it. For a stream whose client takes
  // nothing for a while.
  void Compact() noexcept;

  // Whether the source is open, and further calls of Run() only compute.
  bool never_blocks() const noexcept { return never_blocks_; }

  // The trailing metadata of a complete stream: its proof of completeness.
  Metadata Trailing() const;

 private:
  absl::Status Open(const std::stop_token& stop, MessageSink& sink);
  absl::StatusOr<Step> Fill();
  OutMessage TakeMessage();

  const Contract& contract_;
  SnapshotProvider& provider_;
  AdmittedRequest request_;
  const StreamOptions options_;
  const std::shared_ptr<SlicePool> pool_;
  const std::optional<std::chrono::system_clock::time_point> deadline_;

  std::shared_ptr<const void> keep_alive_;  // must outlive the next two
  std::unique_ptr<ExtentCursor> cursor_;
  std::function<bool()> proven_;
  bool may_change_unseen_ = false;
  std::optional<StreamHeader> header_;
  std::optional<MessageBuilder> builder_;
  StreamDigest digest_;
  uint64_t digest_sent_ = 0;  // bytes in digest_ when the last message was taken
  ExtentBatch batch_{1};      // small while it is not needed
  size_t taken_ = 0;          // tuples of batch_ that are done
  PackedExtents rest_;        // of batch_, after Compact()
  bool complete_ = false;     // the cursor is complete
  bool never_blocks_ = false;
  uint64_t messages_ = 0;
  Clock::time_point first_tuple_at_;
  absl::Status failure_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_MESSAGE_PRODUCER_H_
