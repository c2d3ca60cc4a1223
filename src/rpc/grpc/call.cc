#include "rpc/grpc/call.h"

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
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

// The longest time that a request may take to arrive.
constexpr std::chrono::milliseconds kRequestTime = std::chrono::seconds(10);

// One call; lives until gRPC has called OnDone().
//
// gRPC's own functions may throw std::bad_alloc, and gRPC swallows exceptions of its callbacks: a
// call that can't be continued is cancelled.
class Call final : public Reactor,
                   public ServerCall,
                   public ServedCall,
                   public std::enable_shared_from_this<Call> {
 public:
  Call(grpc::CallbackServerContext& context, const Service::Method& method, HalfRequests& halves)
      : context_(context), method_(method), halves_(halves.calls()) {}

  // Waits for the request. Call once, in gRPC's handler: gRPC starts nothing before that has
  // returned.
  void Await() noexcept;

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

  // Of a half request.
  void End(absl::Status status) override { Refuse(status); }
  void Abort() override;
  void CheckTimes(std::chrono::milliseconds stall, std::chrono::milliseconds total) override;

 private:
  using Clock = std::chrono::steady_clock;

  enum class State {
    kWaiting,  // for the request
    kOpening,  // what the service asks for waits until its handler is known
    kOpen,
    kRefused,  // without a handler: gRPC has the status
  };

  // What the service has asked for while it opened the call.
  struct Deferred {
    bool read = false;
    std::optional<absl::Cord> write;
    std::optional<absl::Cord> last;  // WriteAndFinish()
    std::optional<absl::Status> finish;
  };

  void Refuse(const absl::Status& status) noexcept;
  void Open(absl::Cord request);
  absl::StatusOr<CallHandler*> Opened(absl::Cord request) noexcept;
  void CarryOut(Deferred asked) noexcept;
  void Fail(absl::Status status) noexcept;
  bool Encode(const absl::Cord& message) noexcept;
  absl::Status Take(absl::Cord& message) noexcept;
  void SendStatus(const absl::Status& status) noexcept;
  void CancelLocked() noexcept;

  grpc::CallbackServerContext& context_;
  const Service::Method& method_;
  StreamRegistry& halves_;
  std::shared_ptr<Call> self_;              // until OnDone()
  CallHandler* handler_ = nullptr;          // from kOpen on
  grpc::ByteBuffer incoming_;               // gRPC's while a read is outstanding
  grpc::ByteBuffer outgoing_;               // gRPC's while writing_, and after WriteAndFinish()
  Clock::time_point since_ = Clock::now();  // of a half request: its beginning, then its refusal

  std::mutex mutex_;
  State state_ = State::kWaiting;
  FairPlaces::Place place_;  // of a half request
  Deferred deferred_;
  bool cancelled_ = false;
  bool done_ = false;  // the context is no longer valid
  bool writing_ = false;
  std::optional<absl::Status> end_;  // after the message in flight
  absl::Status failure_;             // overrules the handler's status
};

void Call::Await() noexcept {
  self_ = shared_from_this();
  // Before the registry may end the call: nothing may be started after its status.
  StartRead();
  try {
    absl::StatusOr<FairPlaces::Place> place = halves_.Enter(method_.path);
    if (!place.ok()) return Refuse(place.status());
    {
      const std::lock_guard lock(mutex_);
      place_ = *std::move(place);
    }
    if (absl::Status status = halves_.Add(self_); !status.ok()) Refuse(status);
  } catch (const std::bad_alloc&) {
    Refuse(OutOfMemory());
  }
}

// Ends a half request, once.
void Call::Refuse(const absl::Status& status) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kWaiting) return;
    state_ = State::kRefused;
    since_ = Clock::now();
    place_.Release();
  }
  SendStatus(status);
}

// Requires the lock.
void Call::CancelLocked() noexcept {
  NoteCancelled();
  if (!done_) context_.TryCancel();
}

void Call::Abort() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kWaiting || state_ == State::kRefused) CancelLocked();
}

void Call::CheckTimes(std::chrono::milliseconds stall, std::chrono::milliseconds total) {
  {
    const std::lock_guard lock(mutex_);
    const Clock::duration passed = Clock::now() - since_;
    // The client does not take the status.
    if (state_ == State::kRefused && passed > stall) CancelLocked();
    if (state_ != State::kWaiting || passed <= total) return;
  }
  Refuse(RequestTooLate());
}

void Call::Open(absl::Cord request) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kWaiting) return;
    state_ = State::kOpening;
    place_.Release();
  }
  halves_.Remove(this);
  const absl::StatusOr<CallHandler*> handler = Opened(std::move(request));
  Deferred asked;
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    state_ = handler.ok() ? State::kOpen : State::kRefused;
    cancelled = cancelled_;
    if (handler.ok()) {
      handler_ = *handler;
      asked = std::exchange(deferred_, Deferred());
      // What another thread asks for from now on comes after that.
      writing_ = asked.write.has_value();
      if (writing_) end_ = std::exchange(asked.finish, std::nullopt);
    }
  }
  if (!handler.ok()) return SendStatus(handler.status());
  CarryOut(std::move(asked));
  // gRPC calls OnDone() only after this has returned.
  if (cancelled) handler_->OnCancel();
}

absl::StatusOr<CallHandler*> Call::Opened(absl::Cord request) noexcept {
  try {
    return method_.open(*this, std::move(request));
  } catch (const std::bad_alloc&) {
    // gRPC answers UNIMPLEMENTED for a handler that throws, and clients would then fall back to
    // another method.
    return OutOfMemory();
  } catch (...) {
    return MakeStatusNoThrow(absl::StatusCode::kInternal, "the service threw an exception");
  }
}

void Call::CarryOut(Deferred asked) noexcept {
  if (asked.read) StartRead();
  if (asked.write.has_value()) {
    Write(*std::move(asked.write));
  } else if (asked.last.has_value()) {
    WriteAndFinish(*std::move(asked.last));
  } else if (asked.finish.has_value()) {
    Finish(*std::move(asked.finish));
  }
}

std::optional<std::chrono::system_clock::time_point> Call::deadline() const {
  const std::chrono::system_clock::time_point deadline = context_.deadline();
  // gRPC represents "none" as the maximum time.
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return deadline;
}

void Call::StartRead() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpening) {
      deferred_.read = true;
      return;
    }
  }
  try {
    Reactor::StartRead(&incoming_);
  } catch (const std::bad_alloc&) {
    Fail(OutOfMemory());
    Cancel();
  }
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
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpening) {
      deferred_.write = std::move(message);
      return;
    }
    writing_ = true;
  }
  if (!Encode(message)) return OnWriteDone(false);
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
    if (state_ == State::kOpening) {
      deferred_.finish = std::move(status);
      return;
    }
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
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpening) {
      deferred_.last = std::move(message);
      return;
    }
  }
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
  absl::Cord message;
  const absl::Status status = ok ? Take(message) : RequestMissing();
  if (handler_ == nullptr) return status.ok() ? Open(std::move(message)) : Refuse(status);
  if (ok && !status.ok()) Fail(status);
  handler_->OnReadDone(status.ok(), std::move(message));
}

void Call::OnWriteDone(bool ok) {
  std::optional<absl::Status> end;
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    end.swap(end_);
    if (end.has_value() && !failure_.ok()) end = failure_;
  }
  outgoing_.Clear();
  handler_->OnWriteDone(ok);
  if (end.has_value()) SendStatus(*end);
}

void Call::OnCancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (state_ != State::kOpen) return;
  }
  handler_->OnCancel();
}

void Call::OnDone() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  if (handler_ != nullptr) {
    handler_->OnDone();
  } else {
    halves_.Remove(this);
  }
  self_.reset();  // may destroy this
}

// Null if there is no memory for a call. gRPC would then answer UNIMPLEMENTED, see Call::Opened():
// the client gets CANCELLED instead.
Reactor* NewCall(grpc::CallbackServerContext& context, const Service::Method& method,
                 HalfRequests& halves) noexcept try {
  const auto call = std::make_shared<Call>(context, method, halves);
  call->Await();
  return call.get();
} catch (const std::bad_alloc&) {
  context.TryCancel();
  return nullptr;
}

}  // namespace

HalfRequests::HalfRequests(size_t calls, std::chrono::milliseconds wait_limit)
    : calls_(calls, wait_limit, std::min(wait_limit, kRequestTime)) {}

RpcServiceMethod* NewMethod(const Service::Method& method) {
  return new RpcServiceMethod(method.path.c_str(), RpcMethod::BIDI_STREAMING, nullptr);
}

grpc::internal::MethodHandler* NewHandler(const Service::Method& method, HalfRequests& halves) {
  return new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
      [&method, &halves](grpc::CallbackServerContext* context) {
        return NewCall(*context, method, halves);
      });
}

}  // namespace cbt::rpc
