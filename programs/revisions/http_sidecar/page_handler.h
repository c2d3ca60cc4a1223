// Answers the aggregated API server.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_HANDLER_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_HANDLER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/watched_file.h"
#include "cbt/executor.h"
#include "cbt/kube/client.h"
#include "ops/event_log.h"
#include "ops/metric_set.h"
#include "programs/revisions/aggregated/api/delta_page.h"
#include "programs/revisions/http_server/http_message.h"
#include "programs/revisions/http_server/peer_certificate.h"
#include "programs/revisions/http_sidecar/options.h"
#include "programs/revisions/http_sidecar/page_maker.h"

namespace cbt::kube::http_sidecar {

// For metrics. Thread safe.
struct PageCounters {
  explicit PageCounters(ops::MetricSet& metrics) : set(metrics) {}

  ops::MetricSet& set;
  ops::MetricSet::Counter pages = Of("made");
  ops::MetricSet::Counter failed = Of("failed");    // the plugin, the secret or the request
  ops::MetricSet::Counter refused = Of("refused");  // callers without an accepted certificate
  ops::MetricSet::Counter limited = Of("limited");  // too many at once

 private:
  ops::MetricSet::Counter Of(const char* result) {
    return set.AddCounter("cbt_http_sidecar_pages_total", "Pages by result", "result", result);
  }
};

// Only for callers with a certificate of the configured authorities and name. /readyz answers 200
// while this process serves. Thread safe.
class PageHandler {
 public:
  // All must outlive the server; `ready`: whether this process serves.
  PageHandler(const Options& options, Client& client, PageMaker& maker, std::function<bool()> ready,
              ops::MetricSet& metrics, ops::EventLog& log);
  // Waits for the pages that are being made.
  ~PageHandler() = default;

  void Handle(const std::shared_ptr<const http_server::Request>& request,
              const http_server::Respond& respond);
  // Whether a client with these certificates (Request::peer_certificates) may ask. Errors:
  // UNAUTHENTICATED; UNAVAILABLE without the file of the authority.
  absl::Status CheckCaller(const std::vector<std::string>& certificates);

 private:
  void Queue(aggregated::DeltaPageRequest request, const http_server::Respond& respond);
  http_server::Response Make(const aggregated::DeltaPageRequest& request);

  const Options& options_;
  const std::string prefix_;  // of paths
  Client& client_;
  PageMaker& maker_;
  const std::function<bool()> ready_;
  ops::EventLog& log_;
  WatchedFile<http_server::ClientAuthorities> authorities_;
  PageCounters counters_;
  std::atomic<size_t> pending_ = 0;
  ThreadPool threads_;  // last: its tasks use the others
};

}  // namespace cbt::kube::http_sidecar

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_HANDLER_H_
