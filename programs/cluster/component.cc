#include "programs/cluster/component.h"

namespace cbt::kube::cluster {

absl::StatusOr<std::unique_ptr<ops::HttpPage>> ServePages(const std::string& endpoint,
                                                          ops::HttpPage::Pages pages) {
  if (endpoint.empty()) return nullptr;
  return ops::HttpPage::Serve(endpoint, std::move(pages));
}

ops::HttpAnswer ProbeAnswer(const std::string& wrong) {
  return {.ok = wrong.empty(), .text = wrong.empty() ? "ok" : wrong};
}

absl::StatusOr<std::unique_ptr<LeaderElector>> TakePart(Client& client, const Lease& lease,
                                                        ops::EventLog& log,
                                                        std::function<void()> on_leading) {
  LeaderElectionOptions election;
  election.name_space = lease.name_space;
  election.name = lease.name;
  election.identity = lease.identity.empty() ? LeaderIdentity() : lease.identity;
  election.on_started_leading = [&log, on_leading = std::move(on_leading)] {
    log.Write(rpc::LogLevel::kInfo, "leading");
    on_leading();
  };
  election.on_stopped_leading = [&log] { log.Write(rpc::LogLevel::kInfo, "not leading"); };
  return LeaderElector::Create(client, std::move(election));
}

std::string ElectionFault(const LeaderElector* elector) {
  if (elector == nullptr) return "";
  const absl::Status health = elector->CheckHealth();
  return health.ok() ? "" : std::string(health.message());
}

}  // namespace cbt::kube::cluster
