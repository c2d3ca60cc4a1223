// One call of a streaming method, from the client's side.
#ifndef CBT_RPC_REMOTE_STREAM_H_
#define CBT_RPC_REMOTE_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/wire.h"

namespace cbt::rpc {

// A stream of decoded messages. Belongs to one thread. The destructor cancels what is still running
// and does not wait for the server.
class RemoteStream {
 public:
  using Deadline = std::optional<std::chrono::system_clock::time_point>;

  // Sends `request` (encoded) to the method at `path`.
  RemoteStream(const std::shared_ptr<grpc::Channel>& channel, const char* path,
               const std::string& request, Deadline deadline);
  ~RemoteStream();
  RemoteStream(const RemoteStream&) = delete;
  RemoteStream& operator=(const RemoteStream&) = delete;

  // Waits for the next message; no value when the server ended the stream with OK.
  // Errors: the server's status, gRPC's own when the connection breaks, DATA_LOSS for bytes that
  // are
  //         no message.
  absl::StatusOr<std::optional<MetadataMessage>> Next();

 private:
  // One message is asked for ahead of the consumer.
  void StartRead();
  absl::Status AwaitStatus();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer incoming_;
  int outstanding_ = 0;    // tags that the queue still owes
  bool alive_ = false;     // reads make sense
  bool finished_ = false;  // the status has come
  absl::Status status_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_REMOTE_STREAM_H_
