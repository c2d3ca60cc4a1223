// Makes the messages of one stream: everything that may block, and nothing that knows the
// transport.
#ifndef CBT_RPC_STREAM_PRODUCER_H_
#define CBT_RPC_STREAM_PRODUCER_H_

#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/batch.h"
#include "cbt/cursor.h"
#include "cbt/provider.h"
#include "rpc/contract.h"
#include "rpc/message_builder.h"

namespace cbt::rpc {

// Opens the source of a request and turns its extents into messages. Belongs to one thread at a
// time; may be called from different ones in turn.
class StreamProducer {
 public:
  using Clock = std::chrono::steady_clock;

  // The request has passed CheckRequest(). `provider` must outlive the producer.
  StreamProducer(SnapshotProvider& provider, MetadataRequest request, size_t message_bytes);

  enum class Outcome {
    kMessage,   // `message` is to be sent; call again
    kYield,     // nothing yet and the time is over; call again
    kComplete,  // `message`, if it has a value, is the last one; everything was handed on
  };

  // Works until a message is ready, the stream is complete, or `yield_at` has passed.
  // Errors: CANCELLED when `stop` was requested; what the provider and its cursor say; INTERNAL
  // when
  //         they break their contract or throw. What was found before an error has been handed on
  //         before it is returned.
  absl::StatusOr<Outcome> Run(const std::stop_token& stop, Clock::time_point yield_at,
                              std::optional<grpc::ByteBuffer>& message);

 private:
  absl::Status Open(const std::stop_token& stop);
  absl::Status Prepare(MetadataSource source);
  absl::StatusOr<Step> Fill();
  grpc::ByteBuffer TakeMessage();

  SnapshotProvider& provider_;
  const std::optional<std::string> base_snapshot_id_;
  const std::string target_snapshot_id_;
  const uint64_t starting_offset_;
  const uint32_t max_results_;
  const size_t message_bytes_;
  std::optional<Secrets> secrets_;

  std::unique_ptr<ExtentCursor> cursor_;
  std::optional<MessageBuilder> builder_;
  ExtentBatch batch_;
  size_t taken_ = 0;       // tuples of batch_ that are in messages
  bool started_ = false;   // a tuple that ends after the starting offset was seen
  bool complete_ = false;  // the cursor is
  uint64_t messages_ = 0;
  Clock::time_point first_tuple_at_;
  absl::Status failure_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_STREAM_PRODUCER_H_
