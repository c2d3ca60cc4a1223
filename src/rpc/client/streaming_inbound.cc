#include "rpc/client/streaming_inbound.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rpc/client/paged_inbound.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/resumption.h"

namespace cbt::rpc {
namespace {

absl::Status TwoVersions() {
  return absl::DataLossError(absl::StrCat("metadata stream: ", AbslView(kTwoVersions)));
}

}  // namespace

StreamingInbound::StreamingInbound(std::shared_ptr<Channel> channel, const Contract& contract,
                                   const MethodContract& method, const std::string& request,
                                   Deadline deadline, std::stop_token stop, StallLimit stall)
    : channel_(std::move(channel)),
      contract_(contract),
      stall_(stall),
      receiver_(channel_, deadline, std::move(stop)) {
  receiver_.Start(method.path, request);
}

absl::StatusOr<bool> StreamingInbound::Next(MetadataMessage& message) {
  const absl::StatusOr<std::optional<absl::Cord>> bytes = receiver_.Take(stall_);
  if (!bytes.ok()) {
    return absl::Status(bytes.status().code(),
                        absl::StrCat("metadata stream: ", bytes.status().message()));
  }
  if (!bytes->has_value()) {
    absl::Status status = receiver_.status();
    timed_out_ = absl::IsDeadlineExceeded(status);
    if (!status.ok()) return status;
    if (Trailing(kSourceVersionKey) == kGivenTwice) return TwoVersions();
    return false;
  }
  if (Initial(kSourceVersionKey) == kGivenTwice) return TwoVersions();
  absl::Status status = flat_.Decode(**bytes, message);
  if (status.ok()) status = TranslateType(contract_, message);
  if (!status.ok()) {
    return absl::DataLossError(absl::StrCat("metadata stream: ", status.message()));
  }
  return true;
}

std::optional<std::string_view> StreamingInbound::Initial(std::string_view key) const {
  if (!receiver_.received() && !receiver_.ended()) return std::nullopt;
  return receiver_.call().Initial(key);
}

std::optional<std::string_view> StreamingInbound::Trailing(std::string_view key) const {
  if (!receiver_.ended()) return std::nullopt;
  return receiver_.call().Trailing(key);
}

std::unique_ptr<InboundStream> OpenMessageStream(const std::shared_ptr<Channel>& channel,
                                                 const Contract& contract,
                                                 const MetadataRequest& request, Deadline deadline,
                                                 std::stop_token stop, StallLimit stall) {
  const MethodContract& method =
      request.base_snapshot_id.has_value() ? contract.delta : contract.allocated;
  if (contract.api == Api::kPaged) {
    return std::make_unique<PagedInbound>(channel, method, request, deadline, std::move(stop),
                                          stall);
  }
  return std::make_unique<StreamingInbound>(
      channel, contract, method, EncodeRequest(method, request), deadline, std::move(stop), stall);
}

}  // namespace cbt::rpc
