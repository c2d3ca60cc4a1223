#include "rpc/client/upstream_call.h"

#include <grpcpp/support/slice.h>

#include <utility>

#include "rpc/contract/metadata.h"
#include "rpc/contract/status.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {
UpstreamCall::UpstreamCall(Deadline deadline) {
  if (deadline.has_value()) context_.set_deadline(*deadline);
}

void UpstreamCall::Start(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                         const std::string& request, UpstreamHandler& handler) {
  handler_ = &handler;
  const grpc::Slice slice(request);
  request_ = grpc::ByteBuffer(&slice, 1);
  grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, path, grpc::StubOptions(), this);
  AddHold();
  StartWriteLast(&request_, grpc::WriteOptions());
  StartRead(&incoming_);
  StartCall();
}

void UpstreamCall::OnReadDone(bool ok) {
  if (ok) {
    const grpc::ByteBuffer message(incoming_);
    incoming_.Clear();
    const bool go_on = Deliver(message);
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
bool UpstreamCall::Deliver(const grpc::ByteBuffer& message) noexcept {
  try {
    if (IsCompressed(message)) {
      {
        const std::lock_guard lock(mutex_);
        compressed_ = true;
      }
      Cancel();
      return false;
    }
    return handler_->OnMessage(message);
  } catch (...) {
    Cancel();
    return false;
  }
}

void UpstreamCall::ReadOn() {
  const std::lock_guard lock(mutex_);
  if (!held_ || cancelled_) return;
  if (reading_) {
    read_on_early_ = true;
    return;
  }
  reading_ = true;
  StartRead(&incoming_);
}

void UpstreamCall::Cancel() {
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

std::optional<std::string_view> UpstreamCall::Initial(std::string_view key) const {
  return FindOnly(context_.GetServerInitialMetadata(), key);
}

std::optional<std::string_view> UpstreamCall::Trailing(std::string_view key) const {
  return FindOnly(context_.GetServerTrailingMetadata(), key);
}

// This must not be touched after OnEnd().
void UpstreamCall::OnDone(const grpc::Status& status) {
  bool ended = false;
  bool compressed = false;
  {
    const std::lock_guard lock(mutex_);
    ended = read_to_end_;
    compressed = compressed_;
  }
  if (compressed) {
    // gRPC itself cancels such a call unless the server's OK has already arrived.
    handler_->OnEnd(
        ToGrpcStatus(MakeStatusNoThrow(absl::StatusCode::kUnimplemented,
                                       "the server compresses messages, which this client does not "
                                       "support: turn compression off")));
    return;
  }
  // The handler may still have unread messages: the stream must not look complete.
  const bool left = status.ok() && !ended;
  // Without a text, which may need memory: an exception here would be lost, and the end with it.
  handler_->OnEnd(left ? grpc::Status(grpc::StatusCode::CANCELLED, "") : status);
}

}  // namespace cbt::rpc
