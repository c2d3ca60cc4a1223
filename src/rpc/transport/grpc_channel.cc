#include "rpc/transport/grpc_channel.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "rpc/contract/metadata.h"
#include "rpc/contract/status.h"
#include "rpc/transport/grpc_convert.h"

namespace cbt::rpc {
namespace {

using std::chrono::system_clock;

class Call final : public ClientCall,
                   private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(std::shared_ptr<grpc::Channel> channel, Deadline deadline) : channel_(std::move(channel)) {
    if (deadline.has_value()) context_.set_deadline(*deadline);
  }

  void Start(const std::string& path, const std::string& request,
             ClientCallHandler& handler) override;
  void ReadOn() noexcept override;
  void Cancel() noexcept override;

  std::optional<std::string_view> Initial(std::string_view key) const override {
    return FindOnly(context_.GetServerInitialMetadata(), key);
  }
  std::optional<std::string_view> Trailing(std::string_view key) const override {
    return FindOnly(context_.GetServerTrailingMetadata(), key);
  }

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  bool Deliver() noexcept;

  std::shared_ptr<grpc::Channel> channel_;  // until the call starts; then gRPC's context has it
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer incoming_;
  ClientCallHandler* handler_ = nullptr;

  std::mutex mutex_;
  // gRPC must not finish a call while no read is outstanding: a hold prevents that.
  bool held_ = true;
  bool reading_ = true;         // a read is outstanding, or the handler has its message
  bool read_on_early_ = false;  // ReadOn() was called before the handler returned false
  bool cancelled_ = false;
  bool compressed_ = false;   // a message was compressed, and not delivered
  bool read_to_end_ = false;  // a read has found the end of the messages
};

void Call::Start(const std::string& path, const std::string& request, ClientCallHandler& handler) {
  handler_ = &handler;
  const grpc::Slice slice(request);
  request_ = grpc::ByteBuffer(&slice, 1);
  grpc::GenericStub(channel_).PrepareBidiStreamingCall(&context_, path, grpc::StubOptions(), this);
  channel_.reset();
  AddHold();
  StartWriteLast(&request_, grpc::WriteOptions());
  StartRead(&incoming_);
  StartCall();
}

void Call::OnReadDone(bool ok) {
  if (ok) {
    const bool go_on = Deliver();
    const std::lock_guard lock(mutex_);
    if (cancelled_) {
      reading_ = false;
    } else if (go_on) {
      StartRead(&incoming_);
      return;
    } else {
      // Another thread may already have called ReadOn().
      reading_ = read_on_early_;
      read_on_early_ = false;
      if (reading_) StartRead(&incoming_);
      return;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    // gRPC may drop messages of a cancelled call and still report the server's OK.
    read_to_end_ = !ok && !cancelled_;
    if (!held_) return;
    held_ = false;
  }
  RemoveHold();
}

// gRPC swallows exceptions of callbacks, and would then never end the call.
bool Call::Deliver() noexcept {
  try {
    if (IsCompressed(incoming_)) {
      {
        const std::lock_guard lock(mutex_);
        compressed_ = true;
      }
      Cancel();
      return false;
    }
    absl::Cord message = ToCord(incoming_);
    incoming_.Clear();
    return handler_->OnMessage(std::move(message));
  } catch (...) {
    Cancel();
    return false;
  }
}

void Call::ReadOn() noexcept {
  const std::lock_guard lock(mutex_);
  if (!held_ || cancelled_) return;
  if (reading_) {
    read_on_early_ = true;
    return;
  }
  reading_ = true;
  StartRead(&incoming_);
}

void Call::Cancel() noexcept {
  {
    // First, so that a read that returns because of it is not mistaken for the end.
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  context_.TryCancel();
  {
    const std::lock_guard lock(mutex_);
    // An outstanding read returns and removes the hold.
    if (reading_ || !held_) return;
    held_ = false;
  }
  RemoveHold();
}

// This must not be touched after OnEnd().
void Call::OnDone(const grpc::Status& status) {
  bool ended = false;
  bool compressed = false;
  {
    const std::lock_guard lock(mutex_);
    ended = read_to_end_;
    compressed = compressed_;
  }
  if (compressed) {
    // gRPC itself cancels such a call unless the server's OK has already arrived.
    handler_->OnEnd(MakeStatusNoThrow(absl::StatusCode::kUnimplemented,
                                      "the server compresses messages, which this client does not "
                                      "support: turn compression off"));
    return;
  }
  // The handler may still have unread messages: the stream must not look complete.
  const bool left = status.ok() && !ended;
  // Without a text, which may need memory: an exception here would be lost, and the end with it.
  handler_->OnEnd(left ? MakeStatusNoThrow(absl::StatusCode::kCancelled, "")
                       : FromGrpcStatus(status));
}

// gRPC 1.51 leaks a connection if its channel is destroyed while connecting: both ends keep it
// forever. So a caller that gives up that early waits for the attempt.
void AwaitConnection(grpc::Channel& channel) {
  constexpr std::chrono::seconds kPatience{1};
  if (channel.GetState(false) != GRPC_CHANNEL_CONNECTING) return;
  channel.WaitForStateChange(GRPC_CHANNEL_CONNECTING, system_clock::now() + kPatience);
}

// The status of a small call, which has the reason why there is no connection.
absl::Status Ask(const std::shared_ptr<grpc::Channel>& channel, system_clock::time_point deadline) {
  grpc::ClientContext context;
  context.set_deadline(deadline);
  grpc::CompletionQueue queue;
  grpc::ByteBuffer response;
  grpc::Status status;
  const grpc::Slice nothing;
  const auto call = grpc::GenericStub(channel).PrepareUnaryCall(
      &context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  call->Finish(&response, &status, &context);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) continue;
  return FromGrpcStatus(status);
}

}  // namespace

GrpcChannel::GrpcChannel(std::shared_ptr<grpc::Channel> channel, Release release)
    : channel_(std::move(channel)), release_(release) {}

GrpcChannel::~GrpcChannel() {
  if (release_ == Release::kAfterConnecting) AwaitConnection(*channel_);
}

std::unique_ptr<ClientCall> GrpcChannel::NewCall(Deadline deadline) {
  return std::make_unique<Call>(channel_, deadline);
}

absl::Status GrpcChannel::Connect(system_clock::time_point deadline) {
  grpc_connectivity_state state = channel_->GetState(true);
  while (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) {
    if (!channel_->WaitForStateChange(state, deadline)) break;
    state = channel_->GetState(true);
  }
  if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
  // Any other answer came over a connection, which may already be closed when it returns.
  constexpr std::chrono::seconds kPatience{1};
  const absl::Status status = Ask(channel_, std::max(deadline, system_clock::now() + kPatience));
  const bool unanswered = status.code() == absl::StatusCode::kUnavailable ||
                          status.code() == absl::StatusCode::kDeadlineExceeded;
  if (!unanswered || channel_->GetState(false) == GRPC_CHANNEL_READY) return absl::OkStatus();
  return absl::UnavailableError(status.message());
}

}  // namespace cbt::rpc
