// One call of a streaming method, on the client.
#ifndef CBT_RPC_CLIENT_UPSTREAM_CALL_H_
#define CBT_RPC_CLIENT_UPSTREAM_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace cbt::rpc {

// Receives the events of a call. Called on gRPC's threads, one at a time, and must not block.
class UpstreamHandler {
 public:
  virtual ~UpstreamHandler() = default;
  // True: continue reading. False: stop until ReadOn(). Throwing ends the call with an error.
  virtual bool OnMessage(grpc::ByteBuffer message) = 0;
  // Called last; may destroy the call.
  virtual void OnEnd(const grpc::Status& status) = 0;
};

// Reads a server's stream with at most one read outstanding. The call, its handler and the channel
// must live until OnEnd() is called. From then on they may be destroyed at any time, but the last
// reference to the channel must not be dropped in a callback of gRPC.
class UpstreamCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Deadline = std::optional<std::chrono::system_clock::time_point>;

  explicit UpstreamCall(Deadline deadline);

  // Sends `request` (encoded) to the method at `path` and starts reading. Call once.
  void Start(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
             const std::string& request, UpstreamHandler& handler);

  // Continues after the handler has stopped.
  void ReadOn();

  // Ends the call soon, whatever the server does; OnEnd() is called. Unless the end had already
  // been read, its status is an error, even if the server's OK has arrived: messages before it may
  // not have been read.
  void Cancel();

  // Metadata of the call: initial in OnMessage() and after, trailing in OnEnd() and after.
  std::optional<std::string_view> Initial(std::string_view key) const;
  std::optional<std::string_view> Trailing(std::string_view key) const;

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  bool Deliver(const grpc::ByteBuffer& message) noexcept;

  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer incoming_;
  UpstreamHandler* handler_ = nullptr;

  std::mutex mutex_;
  // gRPC must not finish a call while no read is outstanding: a hold prevents that.
  bool held_ = true;
  bool reading_ = true;         // a read is outstanding, or the handler has its message
  bool read_on_early_ = false;  // ReadOn() was called before the handler returned false
  bool cancelled_ = false;
  bool compressed_ = false;   // a message was compressed, and not delivered
  bool read_to_end_ = false;  // a read has found the end of the messages
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_UPSTREAM_CALL_H_
