#include "rpc/server/small_calls.h"

#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "rpc/contract/server_event.h"
#include "rpc/contract/status.h"
#include "rpc/server/timed_call.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {

class SmallCalls::Call final : public CallHandler, public TimedCall {
 public:
  // `call` is valid until OnDone().
  Call(OpenStreams& calls, const Answer& answer, ServerCall& call, StreamSlot slot)
      : TimedCall(call), calls_(calls), answer_(answer), slot_(std::move(slot)) {}

  // Call once, after the registry holds the call.
  void ReadRequest() noexcept { call_.StartRead(); }

  void OnReadDone(bool ok, absl::Cord message) override {
    try {
      Reply(ok ? Make(message) : RequestMissing());
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

  absl::StatusOr<absl::Cord> Make(const absl::Cord& message) {
    if (message.size() > kMaxQuestionBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the request has ", message.size(),
                                                     " bytes; the limit is ", kMaxQuestionBytes));
    }
    absl::StatusOr<std::string> answer = answer_(FlatMessage().Of(message));
    if (!answer.ok()) return answer.status();
    return absl::Cord(*std::move(answer));
  }

  // Ends the call, once.
  void Reply(absl::StatusOr<absl::Cord> answer) {
    {
      const std::lock_guard lock(mutex_);
      if (replied_) return;
      replied_ = true;
      clock_.HandOver();
    }
    if (!answer.ok()) return call_.Finish(answer.status());
    call_.WriteAndFinish(*std::move(answer));
  }

  OpenStreams& calls_;
  const Answer& answer_;
  const StreamSlot slot_;
  bool replied_ = false;
};

absl::StatusOr<CallHandler*> SmallCalls::Open(ServerCall& call, const Answer& answer) {
  absl::StatusOr<StreamSlot> slot = calls_.TakeSlot();
  if (!slot.ok()) {
    Report(telemetry_, ServerEvent::kCallRefused);
    return MakeStatusNoThrow(absl::StatusCode::kResourceExhausted,
                             "too many calls of this kind are open");
  }
  const auto opened = std::make_shared<Call>(calls_, answer, call, *std::move(slot));
  if (absl::Status status = calls_.Add(opened); !status.ok()) return status;
  opened->ReadRequest();
  // The registry keeps it until OnDone(), which comes only after this has returned.
  return opened.get();
}

}  // namespace cbt::rpc
