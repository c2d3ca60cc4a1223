// Cheap unary calls without a token, for identity and health: their number is limited and shared
// fairly by addresses, and so is the time that a client may take for the answer.
#ifndef CBT_RPC_SERVER_IDENTITY_AND_HEALTH_CALLS_H_
#define CBT_RPC_SERVER_IDENTITY_AND_HEALTH_CALLS_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "base/fair_places.h"
#include "cbt/rpc/telemetry.h"
#include "cbt/units.h"
#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

class IdentityAndHealthCalls {
 public:
  static constexpr size_t kMaxQuestionBytes = 4 * kKiB;
  // Most calls open at once, of which one address can have half; further ones get
  // RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxCalls = 512;
  // A client that wants such an answer reads it within this time.
  static constexpr std::chrono::seconds kWaitLimit{10};

  // Called on the transport's threads with an encoded request; returns the encoded answer.
  using Answer = std::function<absl::StatusOr<std::string>(std::span<const uint8_t> request)>;

  // A call whose client reads nothing for `wait_limit`, at most kWaitLimit, is cancelled. Throws
  // std::system_error if the watching thread can't be started.
  IdentityAndHealthCalls(std::chrono::milliseconds wait_limit, const Telemetry& telemetry)
      : places_(kMaxCalls),
        calls_(kMaxCalls, std::min<std::chrono::milliseconds>(wait_limit, kWaitLimit),
               std::chrono::milliseconds{0}),
        telemetry_(telemetry) {}

  StreamRegistry::Counts Count() const { return calls_.Count(); }

  // Opens a call, see OpenCall.
  absl::StatusOr<CallHandler*> Open(ServerCall& call, const absl::Cord& request,
                                    const Answer& answer);

 private:
  class Call;

  FairPlaces places_;
  // Separate, so that these calls take no slot of a stream and no drain waits for them.
  StreamRegistry calls_;
  const Telemetry telemetry_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_IDENTITY_AND_HEALTH_CALLS_H_
