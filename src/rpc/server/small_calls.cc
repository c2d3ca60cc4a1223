#include "rpc/server/small_calls.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/contract/server_event.h"
#include "rpc/contract/status.h"
#include "rpc/outbound/timed_call.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {

class SmallCalls::Call final : public RawService::BidiReactor, public TimedCall {
 public:
  // `context` is valid until OnDone().
  Call(OpenStreams& calls, const Answer& answer, grpc::CallbackServerContext& context,
       StreamSlot slot)
      : TimedCall(context), calls_(calls), answer_(answer), slot_(std::move(slot)) {}

  // Call once, after the registry holds the call.
  void ReadRequest() { StartRead(&bytes_); }

  void OnReadDone(bool ok) override {
    try {
      Reply(ok ? Make() : RequestMissing());
    } catch (const std::bad_alloc&) {
      Reply(OutOfMemory());
    }
  }

  void OnDone() override {
    Done();
    calls_.Remove(this);  // may destroy this
  }

  void End(absl::Status status) override { Reply(std::move(status)); }

 private:
  bool Ending() const override { return replied_; }

  absl::StatusOr<std::string> Make() {
    if (IsCompressed(bytes_)) return RequestMissing();  // gRPC itself ends the call
    if (bytes_.Length() > kMaxQuestionBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the request has ", bytes_.Length(),
                                                     " bytes; the limit is ", kMaxQuestionBytes));
    }
    return answer_(FlatMessage().Of(bytes_));
  }

  // Ends the call, once.
  void Reply(absl::StatusOr<std::string> answer) {
    {
      const std::lock_guard lock(mutex_);
      if (replied_) return;
      replied_ = true;
      clock_.HandOver();
    }
    if (!answer.ok()) return Finish(ToGrpcStatus(answer.status()));
    const grpc::Slice slice(*answer);
    bytes_ = grpc::ByteBuffer(&slice, 1);
    StartWriteAndFinish(&bytes_, grpc::WriteOptions(), grpc::Status::OK);
  }

  OpenStreams& calls_;
  const Answer& answer_;
  const StreamSlot slot_;
  grpc::ByteBuffer bytes_;  // of the request, then of the answer
  bool replied_ = false;
};

RawService::BidiReactor* SmallCalls::Open(grpc::CallbackServerContext& context,
                                          const Answer& answer) {
  absl::StatusOr<StreamSlot> slot = calls_.TakeSlot();
  if (!slot.ok()) {
    Report(telemetry_, ServerEvent::kCallRefused);
    return RejectBidi(
        {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls of this kind are open"});
  }
  const auto call = std::make_shared<Call>(calls_, answer, context, *std::move(slot));
  if (absl::Status status = calls_.Add(call); !status.ok()) {
    return RejectBidi(ToGrpcStatus(status));
  }
  call->ReadRequest();
  // The registry keeps it until OnDone(), which gRPC calls only after this handler has returned.
  return call.get();
}

}  // namespace cbt::rpc
