// What the programs that run in a cluster begin with, each in the same way: pages for probes, a
// lease, and a start that fails cleanly.
#ifndef CBT_PROGRAMS_CLUSTER_COMPONENT_H_
#define CBT_PROGRAMS_CLUSTER_COMPONENT_H_

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/controller.h"
#include "ops/event_log.h"
#include "ops/http_page.h"

namespace cbt::kube::cluster {

// Serves `pages` at `endpoint` (host:port); null if it is empty.
// Errors: those of ops::HttpPage::Serve().
absl::StatusOr<std::unique_ptr<ops::HttpPage>> ServePages(const std::string& endpoint,
                                                          ops::HttpPage::Pages pages);

// The answer to a probe: "ok", or what is wrong.
ops::HttpAnswer ProbeAnswer(const std::string& wrong);

// The lease that decides which replica acts. An empty identity: LeaderIdentity().
struct Lease {
  std::string name_space;
  std::string name;
  std::string identity;
};

// Takes part in the election, and logs when this process begins or ends to lead. `client` and `log`
// must outlive the elector. `on_leading`: after the log.
// Errors: INVALID_ARGUMENT for a lease that can't be one.
absl::StatusOr<std::unique_ptr<LeaderElector>> TakePart(
    Client& client, const Lease& lease, ops::EventLog& log,
    std::function<void()> on_leading = [] {});

// What is wrong with the elector, for a liveness probe; empty: nothing, or `elector` is null.
std::string ElectionFault(const LeaderElector* elector);

// A component that has started: `Impl(options)`, its Start(), and what `finish` makes of it. What
// these throw becomes an error.
// Errors: those of Impl::Start(); RESOURCE_EXHAUSTED if the system has no threads or no memory.
template <typename Impl, typename Component, typename Options>
absl::StatusOr<std::unique_ptr<Component>> Start(
    Options options, std::unique_ptr<Component> (*finish)(std::unique_ptr<Impl>)) try {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return finish(std::move(impl));
} catch (const std::system_error&) {
  return absl::ResourceExhaustedError("threads: the system can't start more");
} catch (const std::bad_alloc&) {
  return absl::Status(absl::StatusCode::kResourceExhausted, "");
}

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_COMPONENT_H_
