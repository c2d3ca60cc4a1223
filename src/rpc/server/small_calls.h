// Cheap unary calls without a token, for identity and health: their number is limited, and so is
// the time that a client may take for the answer.
#ifndef CBT_RPC_SERVER_SMALL_CALLS_H_
#define CBT_RPC_SERVER_SMALL_CALLS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "cbt/rpc/telemetry.h"
#include "cbt/units.h"
#include "rpc/server/open_streams.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

class SmallCalls {
 public:
  static constexpr size_t kMaxQuestionBytes = 4 * kKiB;
  // Most calls open at once; further ones get RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxCalls = 256;

  // Called on the transport's threads with an encoded request; returns the encoded answer.
  using Answer = std::function<absl::StatusOr<std::string>(std::span<const uint8_t> request)>;

  // A call whose client reads nothing for `patience` is cancelled. Throws std::system_error if the
  // watching thread can't be started.
  SmallCalls(std::chrono::milliseconds patience, const Telemetry& telemetry)
      : calls_(kMaxCalls, patience, std::chrono::milliseconds{0}), telemetry_(telemetry) {}

  OpenStreams::Counts Count() const { return calls_.Count(); }

  // Opens a call, see OpenCall.
  absl::StatusOr<CallHandler*> Open(ServerCall& call, const absl::Cord& request,
                                    const Answer& answer);

 private:
  class Call;

  // Separate, so that these calls take no slot of a stream and no drain waits for them.
  OpenStreams calls_;
  const Telemetry telemetry_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_SMALL_CALLS_H_
