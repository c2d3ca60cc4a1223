// A call with one message in each direction, for a caller that blocks.
#ifndef CBT_RPC_CLIENT_UNARY_CALL_H_
#define CBT_RPC_CLIENT_UNARY_CALL_H_

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "rpc/contract/metadata.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// Belongs to one thread, which must not be one of the transport's.
class UnaryCall {
 public:
  // The channel must outlive the call. Throws std::bad_alloc.
  UnaryCall(Channel& channel, Deadline deadline)
      : channel_(channel), call_(channel.NewCall(deadline)) {}

  // Sends `request` (encoded) to the method at `path` and waits for the answer. Call once. Throws
  // std::bad_alloc before anything has started.
  // Errors: the server's status, the transport's own if the connection breaks, INTERNAL if the
  //         server ends the call with OK without a message or sends more than one, CANCELLED after
  //         `stop`.
  absl::StatusOr<absl::Cord> Run(const std::string& path, const std::string& request,
                                 const std::stop_token& stop = {});

  // Initial metadata; kGivenTwice if the trailing metadata has the key, too. Requires: Run() has
  // returned a message.
  std::optional<std::string_view> Initial(std::string_view key) const {
    const auto trailing = call_->Trailing(key);
    return trailing == kGivenTwice ? trailing : call_->Initial(key);
  }

 private:
  Channel& channel_;
  const std::unique_ptr<ClientCall> call_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_UNARY_CALL_H_
