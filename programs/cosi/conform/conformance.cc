#include "programs/cosi/conform/conformance.h"

#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/address.h"
#include "programs/cosi/conform/checker.h"
#include "programs/cosi/conform/peer.h"
#include "rpc/client/connect.h"

namespace cbt::cosi {

absl::StatusOr<std::vector<rpc::RuleReport>> CheckCosiDriver(const ConformanceOptions& options) {
  const std::string& text = options.address;
  const absl::StatusOr<net::Address> address =
      net::ParseAddress(text.starts_with('/') ? "unix://" + text : text);
  if (!address.ok()) return address.status();
  const absl::StatusOr<std::shared_ptr<rpc::Channel>> channel = rpc::ConnectForGood(*address, {});
  if (!channel.ok()) return channel.status();
  if (absl::Status connected =
          (*channel)->Connect(std::chrono::system_clock::now() + options.call_timeout);
      !connected.ok()) {
    return connected;
  }
  std::vector<rpc::RuleReport> reports;
  for (const Revision revision : kRevisions) {
    const Peer peer(*channel, revision, options.call_timeout);
    if (absl::IsUnimplemented(peer.Info().status())) continue;
    Checker checker(peer, options);
    checker.Run();
    std::vector<rpc::RuleReport> more = checker.Take();
    reports.insert(reports.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
  }
  if (reports.empty()) {
    return absl::UnimplementedError(
        absl::StrCat(text, ": it serves neither the proposal, nor v0.2, nor v1alpha2"));
  }
  return reports;
}

}  // namespace cbt::cosi
