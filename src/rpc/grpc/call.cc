#include "rpc/grpc/call.h"

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "rpc/contract/status.h"
#include "rpc/grpc/convert.h"

#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#endif

namespace cbt::rpc {
namespace {

using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;
using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// One call. gRPC owns it until OnDone().
//
// gRPC's own functions may throw std::bad_alloc, and gRPC swallows exceptions of its callbacks: a
// call that can't be continued is cancelled.
class Call final : public Reactor, public ServerCall {
 public:
  explicit Call(grpc::CallbackServerContext& context) : context_(context) {}

  // Call once. gRPC starts nothing before its own handler has returned, so that no event comes
  // before the handler is known.
  void Open(const OpenCall& open);

  std::optional<std::chrono::system_clock::time_point> deadline() const override;
  void StartRead() noexcept override;
  void AddInitialMetadata(std::string_view key, std::string_view value) override;
  void AddTrailingMetadata(std::string_view key, std::string_view value) override;
  void Write(absl::Cord message) noexcept override;
  void Finish(absl::Status status) noexcept override;
  void WriteAndFinish(absl::Cord message) noexcept override;
  void Cancel() noexcept override { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void Fail(absl::Status status) noexcept;
  bool Encode(const absl::Cord& message) noexcept;
  absl::Status Take(absl::Cord& message) noexcept;
  void SendStatus(const absl::Status& status) noexcept;

  grpc::CallbackServerContext& context_;
  CallHandler* handler_ = nullptr;  // null if the call was refused
  grpc::ByteBuffer incoming_;       // gRPC's while a read is outstanding
  grpc::ByteBuffer outgoing_;       // gRPC's while writing_, and after WriteAndFinish()

  std::mutex mutex_;
  bool writing_ = false;
  std::optional<absl::Status> end_;  // after the message in flight
  absl::Status failure_;             // overrules the handler's status
};

void Call::Open(const OpenCall& open) {
  try {
    const absl::StatusOr<CallHandler*> handler = open(*this);
    if (!handler.ok()) return Finish(handler.status());
    handler_ = *handler;
  } catch (const std::bad_alloc&) {
    // gRPC answers UNIMPLEMENTED for a handler that throws, and clients would then fall back to
    // another method.
    Finish(OutOfMemory());
  } catch (...) {
    Finish(MakeStatusNoThrow(absl::StatusCode::kInternal, "the service threw an exception"));
  }
}

std::optional<std::chrono::system_clock::time_point> Call::deadline() const {
  const std::chrono::system_clock::time_point deadline = context_.deadline();
  // gRPC represents "none" as the maximum time.
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return deadline;
}

void Call::StartRead() noexcept try {
  Reactor::StartRead(&incoming_);
} catch (const std::bad_alloc&) {
  Fail(OutOfMemory());
  Cancel();
}

void Call::AddInitialMetadata(std::string_view key, std::string_view value) {
  context_.AddInitialMetadata(std::string(key), std::string(value));
}

void Call::AddTrailingMetadata(std::string_view key, std::string_view value) {
  context_.AddTrailingMetadata(std::string(key), std::string(value));
}

// From here on the call can only end with `status`: what the client gets is not complete.
void Call::Fail(absl::Status status) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = std::move(status);
}

bool Call::Encode(const absl::Cord& message) noexcept try {
  outgoing_ = ToByteBuffer(message);
  return true;
} catch (const std::bad_alloc&) {
  Fail(OutOfMemory());
  return false;
}

void Call::Write(absl::Cord message) noexcept {
  if (!Encode(message)) {
    if (handler_ != nullptr) handler_->OnWriteDone(false);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    writing_ = true;
  }
  try {
    StartWrite(&outgoing_);
  } catch (const std::bad_alloc&) {
    Fail(OutOfMemory());
    Cancel();
  }
}

void Call::Finish(absl::Status status) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) status = failure_;
    if (writing_) {
      end_ = std::move(status);
      return;
    }
  }
  SendStatus(status);
}

void Call::SendStatus(const absl::Status& status) noexcept try {
  Reactor::Finish(ToGrpcStatus(status));
} catch (const std::bad_alloc&) {
  Cancel();
}

void Call::WriteAndFinish(absl::Cord message) noexcept {
  bool failed = !Encode(message);
  {
    const std::lock_guard lock(mutex_);
    failed = failed || !failure_.ok();
  }
  if (failed) return Finish(OutOfMemory());
  try {
    StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
  } catch (const std::bad_alloc&) {
    Cancel();
  }
}

// OK, or why there is no message.
absl::Status Call::Take(absl::Cord& message) noexcept try {
  if (IsCompressed(incoming_)) {
    // gRPC itself ends such a call too, unless it was built to decompress.
    return MakeStatusNoThrow(absl::StatusCode::kUnimplemented,
                             "the client compresses messages, which this server does not support");
  }
  message = ToCord(incoming_);
  incoming_.Clear();
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

void Call::OnReadDone(bool ok) {
  if (handler_ == nullptr) return;
  absl::Cord message;
  if (ok) {
    if (absl::Status status = Take(message); !status.ok()) {
      Fail(std::move(status));
      ok = false;
    }
  }
  handler_->OnReadDone(ok, std::move(message));
}

void Call::OnWriteDone(bool ok) {
  std::optional<absl::Status> end;
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    end.swap(end_);
  }
  outgoing_.Clear();
  if (handler_ != nullptr) handler_->OnWriteDone(ok);
  if (end.has_value()) SendStatus(*end);
}

void Call::OnCancel() {
  if (handler_ != nullptr) handler_->OnCancel();
}

void Call::OnDone() {
  if (handler_ != nullptr) handler_->OnDone();
  delete this;
}

// Null if there is no memory for a call. gRPC would then answer UNIMPLEMENTED, see Call::Open():
// the client gets CANCELLED instead.
Reactor* Opened(grpc::CallbackServerContext& context, const OpenCall& open) noexcept {
  auto* const call = new (std::nothrow) Call(context);
  if (call == nullptr) {
    context.TryCancel();
  } else {
    call->Open(open);
  }
  return call;
}

}  // namespace

RpcServiceMethod* NewMethod(const Service::Method& method) {
  return new RpcServiceMethod(method.path.c_str(), RpcMethod::BIDI_STREAMING, nullptr);
}

grpc::internal::MethodHandler* NewHandler(const Service::Method& method) {
  return new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
      [open = &method.open](grpc::CallbackServerContext* context) {
        return Opened(*context, *open);
      });
}

}  // namespace cbt::rpc
