// One call of a streaming method, from the client's side.
#ifndef CBT_RPC_REMOTE_STREAM_H_
#define CBT_RPC_REMOTE_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "rpc/message_stream.h"

namespace cbt::rpc {

class RemoteStream final : public MessageStream {
 public:
  // Sends `request` (encoded) to `method` of `contract`.
  RemoteStream(const std::shared_ptr<grpc::Channel>& channel, const Contract& contract,
               const MethodContract& method, const std::string& request, Deadline deadline,
               std::stop_token stop);
  ~RemoteStream() override;
  RemoteStream(const RemoteStream&) = delete;
  RemoteStream& operator=(const RemoteStream&) = delete;

  absl::StatusOr<bool> Next(MetadataMessage& message) override;
  std::optional<std::string_view> Initial(std::string_view key) const override;
  std::optional<std::string_view> Trailing(std::string_view key) const override;

 private:
  // One message is asked for ahead of the consumer.
  void StartRead();
  absl::Status AwaitStatus();

  const Contract& contract_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer incoming_;
  int outstanding_ = 0;    // tags that the queue still owes
  bool alive_ = false;     // reads make sense
  bool received_ = false;  // a message has come, and initial metadata with it
  bool finished_ = false;  // the status has come
  absl::Status status_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_REMOTE_STREAM_H_
