// One call of a streaming method, from the client's side.
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

// What a call gives. Called on gRPC's threads, one call at a time, and must not block.
class UpstreamHandler {
 public:
  virtual ~UpstreamHandler() = default;
  // True: go on reading. False: stop until ReadOn(). Throwing ends the call with an error.
  virtual bool OnMessage(grpc::ByteBuffer message) = 0;
  // The last thing that is called; the call may be destroyed in it.
  virtual void OnEnd(const grpc::Status& status) = 0;
};

// Reads a server's stream with at most one read outstanding. It, its handler and the channel must
// live until OnEnd() is called, from which on they may die at any time, though the last reference
// to the channel not in a callback of gRPC's.
class UpstreamCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Deadline = std::optional<std::chrono::system_clock::time_point>;

  explicit UpstreamCall(Deadline deadline);

  // Sends `request` (encoded) to the method at `path` and begins to read. Call once.
  void Start(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
             const std::string& request, UpstreamHandler& handler);

  // Goes on after a handler has stopped.
  void ReadOn();

  // Ends the call soon, whatever the server does; OnEnd() comes. It comes with an error unless the
  // end had been read before, also where the server's OK is there already: whoever stops reading
  // has not taken what was sent.
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
  // gRPC must not finish a call that nobody is reading just now: a hold stands for the reader.
  bool held_ = true;
  bool reading_ = true;         // a read is outstanding, or its message with the handler
  bool read_on_early_ = false;  // ReadOn() came before the handler had said that it stops
  bool cancelled_ = false;
  bool compressed_ = false;   // a message was, and not delivered
  bool read_to_end_ = false;  // a read found that there are no more messages
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_UPSTREAM_CALL_H_
