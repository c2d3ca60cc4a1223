// A server's stream for a consumer that blocks until messages arrive.
#ifndef CBT_RPC_CLIENT_STREAMING_INBOUND_H_
#define CBT_RPC_CLIENT_STREAMING_INBOUND_H_

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "rpc/client/inbound_stream.h"
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
  ~StreamingInbound() override;
  StreamingInbound(const StreamingInbound&) = delete;
  StreamingInbound& operator=(const StreamingInbound&) = delete;

  absl::StatusOr<bool> Next(MetadataMessage& message) override;
  bool timed_out() const noexcept override { return timed_out_; }
  std::optional<std::string_view> Initial(std::string_view key) const override;
  std::optional<std::string_view> Trailing(std::string_view key) const override;

 private:
  class Receiver;
  using OnStop = std::optional<std::stop_callback<std::function<void()>>>;

  const std::shared_ptr<Channel> channel_;
  const Contract& contract_;
  const StallLimit stall_;
  std::unique_ptr<Receiver> receiver_;
  FlatMessage flat_;
  OnStop on_stop_;
  bool timed_out_ = false;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_STREAMING_INBOUND_H_
