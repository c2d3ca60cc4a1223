#include "programs/cluster/component.h"

#include "ops/certificate_end.h"

namespace cbt::kube::cluster {

ops::HttpAnswer ProbeAnswer(const std::string& wrong) {
  return {.ok = wrong.empty(), .text = wrong.empty() ? "ok" : wrong};
}

void Component::Shutdown(std::chrono::milliseconds grace) {
  const std::lock_guard lock(shutdown_);
  draining_ = true;
  Stop(grace);
}

std::optional<ops::HttpAnswer> Component::Page(std::string_view path) const {
  if (path == "/readyz") return started_ ? Readiness() : ProbeAnswer("not ready");
  if (path == "/healthz" || path == "/livez") {
    if (!started_ || elector_ == nullptr) return ProbeAnswer("");
    return ProbeAnswer(std::string(elector_->CheckHealth().message()));
  }
  // Gauges read what a start makes.
  if (path == "/metrics") return ops::HttpAnswer{.text = started_ ? metrics_.Text() : ""};
  return std::nullopt;
}

absl::Status Component::StartPages(const std::string& certificate_file) {
  if (options_.http_endpoint.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<ops::HttpPage>> page =
      ops::HttpPage::Serve({.endpoint = options_.http_endpoint, .access = options_.page_access},
                           [this](std::string_view path) { return Page(path); });
  if (!page.ok()) return page.status();
  page_ = *std::move(page);
  for (const std::string& file : {certificate_file, options_.page_access.certificate_file}) {
    ops::AddCertificateEnd(metrics_, file);
  }
  return absl::OkStatus();
}

absl::Status Component::StartElection(Client& client, std::function<void()> on_leading) {
  if (!options_.leader_election) return absl::OkStatus();
  if (options_.lease_namespace.empty()) {
    return absl::InvalidArgumentError("leader election: the lease needs a namespace");
  }
  LeaderElectionOptions election;
  election.name_space = options_.lease_namespace;
  election.name = options_.lease;
  election.identity = options_.identity.empty() ? LeaderIdentity() : options_.identity;
  election.on_started_leading = [this, on_leading = std::move(on_leading)] {
    log_.Write(rpc::LogLevel::kInfo, "leading");
    on_leading();
  };
  election.on_stopped_leading = [this] { log_.Write(rpc::LogLevel::kInfo, "not leading"); };
  absl::StatusOr<std::unique_ptr<LeaderElector>> elector =
      LeaderElector::Create(client, std::move(election));
  if (!elector.ok()) return elector.status();
  elector_ = *std::move(elector);
  return absl::OkStatus();
}

}  // namespace cbt::kube::cluster
