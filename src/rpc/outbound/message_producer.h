// Makes the messages of one stream: everything that may block, and nothing that knows the
// transport.
#ifndef CBT_RPC_OUTBOUND_MESSAGE_PRODUCER_H_
#define CBT_RPC_OUTBOUND_MESSAGE_PRODUCER_H_

#include <grpcpp/support/byte_buffer.h>

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
#include "cbt/rpc/server.h"
#include "rpc/access/admission.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/outbound/outbound_feed.h"
#include "rpc/transport/message_builder.h"

namespace cbt::rpc {

// Opens a request's source: the provider's cursor, guarded, shaped as the options ask, standing at
// the starting offset. Used for streams and for pages.
struct ShapedCursor {
  std::unique_ptr<ExtentCursor> cursor;
  BlockMetadataType type = BlockMetadataType::kUnknown;
  uint64_t capacity = 0;
  StreamSummary summary = {};
  std::function<bool()> proven = {};
  std::string version = {};  // as SourceVersion() makes it
};
// Errors: those of the provider and its cursor, OUT_OF_RANGE for an offset past the capacity,
//         INTERNAL when the provider breaks its contract.
absl::StatusOr<ShapedCursor> OpenShapedCursor(SnapshotProvider& provider,
                                              const AdmittedRequest& request,
                                              const StreamContext& context,
                                              const StreamShape& shape);

// Opens the source of a request and turns its extents into messages. Belongs to one thread at a
// time; may be called from different ones in turn.
class MessageProducer {
 public:
  using Clock = std::chrono::steady_clock;

  // The contract and the provider must outlive the producer.
  MessageProducer(const Contract& contract, SnapshotProvider& provider, AdmittedRequest request,
                  const StreamOptions& options, std::shared_ptr<SlicePool> pool,
                  std::optional<std::chrono::system_clock::time_point> deadline);

  enum class Outcome {
    kMessage,   // `message` is to be sent; call again
    kYield,     // nothing yet and the time is over; call again
    kComplete,  // `message`, if it has a value, is the last one; everything was handed on
  };

  // Works until a message is ready, the stream is complete, or `yield_at` has passed. Announces to
  // `sink` what is known before the first message.
  // Errors: CANCELLED when `stop` was requested; what the provider and its cursor say; INTERNAL
  //         when they break their contract or throw, RESOURCE_EXHAUSTED when memory runs out. What
  //         was found before an error has been handed on before it is returned, unless something
  //         threw.
  absl::StatusOr<Outcome> Run(const std::stop_token& stop, Clock::time_point yield_at,
                              MessageSink& sink, std::optional<OutMessage>& message);

  // What goes behind a complete stream: the proof that it is.
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

  std::unique_ptr<ExtentCursor> cursor_;
  std::function<bool()> proven_;
  std::optional<StreamHeader> header_;
  std::optional<MessageBuilder> builder_;
  StreamDigest digest_;
  uint64_t digest_sent_ = 0;  // bytes in digest_ when the last message was taken
  ExtentBatch batch_;
  size_t taken_ = 0;       // tuples of batch_ that are in messages
  bool complete_ = false;  // the cursor is
  uint64_t messages_ = 0;
  Clock::time_point first_tuple_at_;
  absl::Status failure_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_OUTBOUND_MESSAGE_PRODUCER_H_
