#include "cbt/rpc/conformance.h"

#include "rpc/client/connect.h"
#include "rpc/conformance/conformance_checker.h"

namespace cbt::rpc {

std::string_view RuleResultName(RuleResult result) noexcept {
  switch (result) {
    case RuleResult::kPass:
      return "pass";
    case RuleResult::kFail:
      return "fail";
    case RuleResult::kNotApplicable:
      break;
  }
  return "not applicable";
}

absl::StatusOr<std::vector<RuleReport>> CheckConformance(const ConformanceOptions& options) {
  absl::StatusOr<net::Address> address = net::ParseAddress(options.request.address);
  if (!address.ok()) return address.status();
  absl::StatusOr<std::shared_ptr<Channel>> channel = ConnectForGood(*address, options.request.tls);
  if (!channel.ok()) return channel.status();
  return ConformanceChecker(options, *address, *std::move(channel)).Run();
}

}  // namespace cbt::rpc
