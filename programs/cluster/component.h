// What the programs that run in a cluster have in common: pages for probes and metrics, a lease, a
// start that fails cleanly and an end.
#ifndef CBT_PROGRAMS_CLUSTER_COMPONENT_H_
#define CBT_PROGRAMS_CLUSTER_COMPONENT_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/controller.h"
#include "cbt/rpc/telemetry.h"
#include "ops/event_log.h"
#include "ops/http_page.h"
#include "ops/metric_set.h"

namespace cbt::kube::cluster {

struct ComponentOptions {
  // "host:port" of the pages, an empty host for every address; empty: none.
  std::string http_endpoint = {};
  ops::PageAccess page_access = {};

  // One of several processes acts, by this Lease.
  bool leader_election = false;
  std::string lease_namespace = {};
  std::string lease = {};     // its name
  std::string identity = {};  // empty: LeaderIdentity()

  rpc::LogSink* log = nullptr;  // may be null
};

// The answer to a probe: "ok", or what is wrong.
ops::HttpAnswer ProbeAnswer(const std::string& wrong);

// The base of a program. Its own class calls Shutdown() in its destructor.
class Component {
 public:
  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;

  int http_port() const noexcept { return page_ == nullptr ? 0 : page_->port(); }

  // Not ready from the beginning on; then Stop(). May be called again.
  void Shutdown(std::chrono::milliseconds grace);

 protected:
  explicit Component(ComponentOptions options) : options_(std::move(options)), log_(options_.log) {}
  virtual ~Component() = default;

  // Work under way goes on for up to `grace`. Called without a start, too, and more than once.
  virtual void Stop(std::chrono::milliseconds grace) = 0;
  // The answer of /readyz, once the program has started.
  virtual ops::HttpAnswer Readiness() const = 0;
  // /healthz and /livez: the election works. /readyz. /metrics: what was added to metrics().
  virtual std::optional<ops::HttpAnswer> Page(std::string_view path) const;

  // Serves Page(), and measures until when its certificate is valid. Errors: those of
  // ops::HttpPage::Serve().
  // `certificate_file`: of what else the program serves, for the same metric; empty: nothing.
  absl::Status StartPages(const std::string& certificate_file = "");
  void StopPages() { page_.reset(); }
  // For a lease whose name is known late: before StartElection().
  void NameLease(std::string name) { options_.lease = std::move(name); }
  // Takes part in the election if the options say so, and logs when this process begins or ends to
  // lead. `client` must live until StopElection(). `on_leading`: after the log.
  // Errors: INVALID_ARGUMENT for a lease that can't be one.
  absl::Status StartElection(
      Client& client, std::function<void()> on_leading = [] {});
  // The lease is released: another process may act.
  void StopElection() { elector_.reset(); }
  // The last step of a start.
  void SetStarted() noexcept { started_ = true; }

  bool started() const noexcept { return started_; }
  bool draining() const noexcept { return draining_; }
  // This process leads, or there is no election.
  bool Leads() const { return elector_ == nullptr || elector_->IsLeader(); }
  bool MayAct() const { return !draining_ && Leads(); }

  ops::EventLog& log() noexcept { return log_; }
  ops::MetricSet& metrics() noexcept { return metrics_; }

 private:
  ComponentOptions options_;
  ops::EventLog log_;
  ops::MetricSet metrics_;
  std::atomic<bool> started_ = false;
  std::atomic<bool> draining_ = false;
  std::mutex shutdown_;
  std::unique_ptr<LeaderElector> elector_;
  std::unique_ptr<ops::HttpPage> page_;
};

// A component that has started: `Impl(options)`, its Start(), and what `finish` makes of it. What
// these throw becomes an error.
// Errors: those of Impl::Start(); RESOURCE_EXHAUSTED if the system has no threads or no memory.
template <typename Impl, typename Program, typename Options>
absl::StatusOr<std::unique_ptr<Program>> Start(
    Options options, std::unique_ptr<Program> (*finish)(std::unique_ptr<Impl>)) try {
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
