#include "rpc/server/health_service.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "rpc/contract/server_event.h"
#include "rpc/contract/status.h"
#include "rpc/server/timed_call.h"
#include "rpc/transport/flat_message.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {
namespace {

// Of health.proto.
constexpr uint32_t kRequestService = 1;
constexpr uint32_t kResponseStatus = 1;
constexpr uint64_t kServing = 1;
constexpr uint64_t kNotServing = 2;
constexpr uint64_t kServiceUnknown = 3;

// The requested service; empty for the server as a whole, the only one known here.
absl::StatusOr<std::string> AskedFor(std::span<const uint8_t> request) {
  std::string name;
  wire::ProtoReader reader(request);
  while (reader.Next()) {
    if (reader.Is(kRequestService, wire::WireType::kBytes)) name = reader.text();
  }
  if (!reader.status().ok()) return reader.status();
  return name;
}

std::string Encoded(uint64_t status) {
  std::string bytes;
  wire::AppendVarintField(bytes, kResponseStatus, status);
  return bytes;
}

}  // namespace

// Sends the state, and then each change. Lives until the transport has released it.
class HealthService::Watch final : public CallHandler, public TimedCall {
 public:
  // `call` is valid until OnDone(); the service must outlive the watch. `known`: whether there is
  // the service that the client has named.
  Watch(HealthService& service, ServerCall& call, FairPlaces::Place place, bool known)
      : TimedCall(call), service_(service), place_(std::move(place)), known_(known) {}

  // Sends the state unless it was the last one sent.
  void Update() {
    try {
      Send();
    } catch (const std::bad_alloc&) {
      End(OutOfMemory());
    }
  }

  void OnWriteDone(bool ok) override {
    std::optional<absl::Status> end;
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      clock_.Sent();
      end.swap(end_);
    }
    if (!ok) return End(absl::CancelledError());
    if (end.has_value()) return End(*std::move(end));
    Update();
  }

  void OnCancel() override { End(absl::CancelledError()); }

  void OnDone() override {
    Done();
    service_.watches_.Remove(this);  // may destroy this
  }

  void End(absl::Status status) override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      if (writing_) {
        end_ = std::move(status);
        return;
      }
      closed_ = true;
      clock_.StartSending();
    }
    call_.Finish(std::move(status));
  }

 private:
  bool Ending() const override { return closed_; }

  void Send() {
    absl::Cord message;
    {
      const std::lock_guard lock(mutex_);
      const uint64_t state = !known_ ? kServiceUnknown : service_.serving_ ? kServing : kNotServing;
      if (closed_ || writing_ || sent_ == state) return;
      message = absl::Cord(Encoded(state));
      sent_ = state;
      writing_ = true;
      clock_.StartSending();
    }
    call_.Write(std::move(message));
  }

  HealthService& service_;
  const FairPlaces::Place place_;
  const bool known_;
  uint64_t sent_ = 0;  // the encoded state; 0 before the first
  bool writing_ = false;
  std::optional<absl::Status> end_;  // after the message in flight
  bool closed_ = false;              // the transport has the status
};

HealthService::HealthService(IdentityAndHealthCalls& calls, std::chrono::milliseconds wait_limit,
                             const Telemetry& telemetry)
    : check_([this](std::span<const uint8_t> request) -> absl::StatusOr<std::string> {
        const absl::StatusOr<std::string> name = AskedFor(request);
        if (!name.ok()) return name.status();
        if (!name->empty()) return absl::NotFoundError("health: unknown service");
        return Encoded(serving_ ? kServing : kNotServing);
      }),
      telemetry_(telemetry),
      places_(kMaxWatches),
      watches_(kMaxWatches,
               std::min<std::chrono::milliseconds>(wait_limit, IdentityAndHealthCalls::kWaitLimit),
               std::chrono::milliseconds{0}) {
  AddMethod("/grpc.health.v1.Health/Check",
            [this, &calls](ServerCall& call, const absl::Cord& request) {
              return calls.Open(call, request, check_);
            });
  AddMethod("/grpc.health.v1.Health/Watch", [this](ServerCall& call, const absl::Cord& request) {
    return OpenWatch(call, request);
  });
}

absl::StatusOr<CallHandler*> HealthService::OpenWatch(ServerCall& call, const absl::Cord& request) {
  std::optional<FairPlaces::Place> place = places_.Take(call.peer());
  if (!place.has_value()) {
    Report(telemetry_, ServerEvent::kCallRefused);
    return MakeStatusNoThrow(absl::StatusCode::kResourceExhausted,
                             "health: too many watches are open from this address");
  }
  if (request.size() > IdentityAndHealthCalls::kMaxQuestionBytes) {
    return absl::InvalidArgumentError("health: the request is too long");
  }
  const absl::StatusOr<std::string> name = AskedFor(FlatMessage().Of(request));
  if (!name.ok()) return name.status();
  const auto watch = std::make_shared<Watch>(*this, call, *std::move(place), name->empty());
  if (absl::Status status = watches_.Add(watch); !status.ok()) return status;
  watch->Update();
  // The registry keeps it until OnDone(), which comes only after this has returned.
  return watch.get();
}

void HealthService::SetServing(bool serving) {
  const std::lock_guard lock(mutex_);
  if (!drained_ && serving_ != serving) Change(serving);
}

void HealthService::Drain() {
  const std::lock_guard lock(mutex_);
  drained_ = true;
  Change(false);
}

// Requires the lock.
void HealthService::Change(bool serving) {
  serving_ = serving;
  watches_.ForEachOpen([](ServedCall& call) { static_cast<Watch&>(call).Update(); });
}

void HealthService::EndWatches() {
  watches_.StartDrain(std::chrono::milliseconds{0});
  watches_.FinishDrain();
}

}  // namespace cbt::rpc
