// One open stream: hands messages from a producer to gRPC, with bounded memory and without ever
// blocking gRPC's threads.
#ifndef CBT_RPC_STREAM_REACTOR_H_
#define CBT_RPC_STREAM_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "cbt/executor.h"
#include "rpc/stream_producer.h"
#include "rpc/stream_registry.h"

namespace cbt::rpc {

// Two sides meet here under one lock. The producer's side is at most one task in the executor,
// which fills messages while there is room for them and goes away when there is none. gRPC's side
// is at most one write, and when it is done the next. So a client that stops reading holds a few
// messages and no thread.
//
// The stream is finished exactly once, as soon as no write is on its way; it does not wait for the
// producer, because a provider's call may take long. The object lives until gRPC and the last task
// have let go of it; the source always dies in the executor, because that may block too.
class StreamReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public std::enable_shared_from_this<StreamReactor> {
 public:
  // `context` is valid until OnDone(); registry and executor must outlive the reactor.
  StreamReactor(grpc::CallbackServerContext& context, StreamRegistry& registry, StreamSlot slot,
                Executor& executor, size_t messages_in_flight,
                std::unique_ptr<StreamProducer> producer);

  // Begins to produce. Call once, when the registry holds the stream.
  void Start();

  // Ends the stream with `status` once the message on its way is out, unless everything was sent.
  void End(absl::Status status);

  // Cancels the call, also if the client takes nothing.
  void Abort();

  // Aborts if gRPC has been sitting on a message, or on the status, for longer than `timeout`.
  void AbortIfStalled(std::chrono::milliseconds timeout);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  using Clock = StreamProducer::Clock;

  void Produce();
  void ScheduleProducer();
  bool HasRoom() const noexcept;
  void Break();
  void Advance(std::unique_lock<std::mutex> lock);

  StreamRegistry& registry_;
  const StreamSlot slot_;
  Executor& executor_;
  const size_t messages_in_flight_;
  std::stop_source stop_;

  // Belongs to the task while producing_.
  std::unique_ptr<StreamProducer> producer_;

  std::mutex mutex_;
  grpc::CallbackServerContext* context_;  // null after OnDone()
  std::deque<grpc::ByteBuffer> ready_;
  grpc::ByteBuffer current_;  // gRPC reads it while writing_
  bool writing_ = false;
  Clock::time_point handed_over_at_;      // when gRPC got current_, or the status
  bool producing_ = false;                // a task is queued or running
  std::optional<absl::Status> produced_;  // how the producer ended
  std::optional<absl::Status> forced_;    // how the stream ends though the producer hasn't
  bool broken_ = false;                   // the client is gone: no OK any more
  bool closed_ = false;                   // the status is with gRPC, or about to be
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_STREAM_REACTOR_H_
