#include "rpc/server/identity_and_health_calls.h"

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "rpc/contract/server_event.h"
#include "rpc/contract/status.h"
#include "rpc/server/timed_call.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {

class IdentityAndHealthCalls::Call final : public CallHandler, public TimedCall {
 public:
  // `call` is valid until OnDone().
  Call(StreamRegistry& calls, ServerCall& call, FairPlaces::Place place)
      : TimedCall(call), calls_(calls), place_(std::move(place)) {}

  // Call once, after the registry holds the call.
  void Serve(const Answer& answer, const absl::Cord& request) {
    try {
      Reply(Make(answer, request));
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

  static absl::StatusOr<absl::Cord> Make(const Answer& answer, const absl::Cord& request) {
    if (request.size() > kMaxQuestionBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the request has ", request.size(),
                                                     " bytes; the limit is ", kMaxQuestionBytes));
    }
    absl::StatusOr<std::string> bytes = answer(FlatMessage().Of(request));
    if (!bytes.ok()) return bytes.status();
    return absl::Cord(*std::move(bytes));
  }

  // Ends the call, once.
  void Reply(absl::StatusOr<absl::Cord> answer) {
    {
      const std::lock_guard lock(mutex_);
      if (replied_) return;
      replied_ = true;
      clock_.StartSending();
    }
    if (!answer.ok()) return call_.Finish(answer.status());
    call_.WriteAndFinish(*std::move(answer));
  }

  StreamRegistry& calls_;
  const FairPlaces::Place place_;
  bool replied_ = false;
};

absl::StatusOr<CallHandler*> IdentityAndHealthCalls::Open(ServerCall& call,
                                                          const absl::Cord& request,
                                                          const Answer& answer) {
  std::optional<FairPlaces::Place> place = places_.Take(call.peer());
  if (!place.has_value()) {
    Report(telemetry_, ServerEvent::kCallRefused);
    return MakeStatusNoThrow(absl::StatusCode::kResourceExhausted,
                             "too many calls of this kind are open from this address");
  }
  const auto opened = std::make_shared<Call>(calls_, call, *std::move(place));
  if (absl::Status status = calls_.Add(opened); !status.ok()) return status;
  opened->Serve(answer, request);
  // The registry keeps it until OnDone(), which comes only after this has returned.
  return opened.get();
}

}  // namespace cbt::rpc
