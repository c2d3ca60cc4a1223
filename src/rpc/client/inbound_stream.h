// A stream of decoded messages from a server of any contract.
#ifndef CBT_RPC_CLIENT_INBOUND_STREAM_H_
#define CBT_RPC_CLIENT_INBOUND_STREAM_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/wire/message.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// How long a server may send nothing while the client waits.
using StallLimit = std::optional<std::chrono::milliseconds>;

// Belongs to one thread. The destructor cancels a running call and does not wait for the server.
class InboundStream {
 public:
  virtual ~InboundStream() = default;

  // Waits for the next message; returns false if the server ended the stream with OK.
  // Errors: the server's status, the transport's own if the connection breaks, DATA_LOSS for bytes
  //         that are not a message, DEADLINE_EXCEEDED if nothing arrives within the limit.
  virtual absl::StatusOr<bool> Next(MetadataMessage& message) = 0;

  // Whether Next() failed because the call ended with DEADLINE_EXCEEDED: at the server's own limit
  // for a stream or at the deadline, not because nothing arrived.
  virtual bool timed_out() const noexcept { return false; }

  // Metadata of the call: initial after the first message or at the end, trailing at the end.
  virtual std::optional<std::string_view> Initial(std::string_view key) const = 0;
  virtual std::optional<std::string_view> Trailing(std::string_view key) const = 0;
};

// Opens a stream of a method of `contract` (allocated or delta, depending on the request). For the
// paged contract, which requests page by page, the request and the channel must outlive it.
std::unique_ptr<InboundStream> OpenMessageStream(const std::shared_ptr<Channel>& channel,
                                                 const Contract& contract,
                                                 const MetadataRequest& request, Deadline deadline,
                                                 std::stop_token stop, StallLimit stall = {});

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_INBOUND_STREAM_H_
