// A server's stream for a consumer that blocks until messages arrive.
#ifndef CBT_RPC_CLIENT_STREAMING_INBOUND_H_
#define CBT_RPC_CLIENT_STREAMING_INBOUND_H_

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "rpc/client/inbound_stream.h"
#include "rpc/client/message_receiver.h"
#include "rpc/transport/client_call.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {

// The transport's threads receive messages ahead of the consumer, at most some hundred kilobytes.
class StreamingInbound final : public InboundStream {
 public:
  // Sends `request` (encoded) to `method` of `contract`.
  StreamingInbound(std::shared_ptr<Channel> channel, const Contract& contract,
                   const MethodContract& method, const std::string& request, Deadline deadline,
                   std::stop_token stop, StallLimit stall);

  absl::StatusOr<bool> Next(MetadataMessage& message) override;
  bool timed_out() const noexcept override { return timed_out_; }
  std::optional<std::string_view> Initial(std::string_view key) const override;
  std::optional<std::string_view> Trailing(std::string_view key) const override;

 private:
  const std::shared_ptr<Channel> channel_;
  const Contract& contract_;
  const StallLimit stall_;
  MessageReceiver receiver_;
  FlatMessage flat_;
  bool timed_out_ = false;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_STREAMING_INBOUND_H_
