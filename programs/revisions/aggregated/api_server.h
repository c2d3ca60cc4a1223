// The requests of an aggregated API server, from their users to their answers.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_API_SERVER_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_API_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/fair_limit.h"
#include "base/fair_places.h"
#include "cbt/executor.h"
#include "cbt/kube/typed_objects.h"
#include "ops/event_log.h"
#include "ops/metric_set.h"
#include "programs/cluster/access_reviewer.h"
#include "programs/revisions/aggregated/delta_service.h"
#include "programs/revisions/aggregated/discovery_documents.h"
#include "programs/revisions/aggregated/front_proxy.h"
#include "programs/revisions/http_server/http_message.h"

namespace cbt::kube::aggregated {

// For metrics. Thread safe.
struct RequestCounters {
  explicit RequestCounters(ops::MetricSet& metrics) : set(metrics) {}

  ops::MetricSet& set;
  ops::MetricSet::Counter answered = Of("answered");                // 2xx
  ops::MetricSet::Counter refused = Of("refused");                  // 4xx but these two:
  ops::MetricSet::Counter unauthenticated = Of("unauthenticated");  // 401
  ops::MetricSet::Counter limited = Of("limited");                  // 429
  ops::MetricSet::Counter failed = Of("failed");                    // 5xx

 private:
  ops::MetricSet::Counter Of(const char* answer) {
    return set.AddCounter("cbt_aggregated_requests_total", "Requests by answer", "answer", answer);
  }
};

// The order of checks: who asks (401), how often (429), may they (403), what do they ask (400, 404,
// 405). /healthz, /livez and /readyz are for everybody. Thread safe.
class ApiServer {
 public:
  // All must outlive the HTTP server. `checks`: of /readyz.
  ApiServer(const Options& options, const FrontProxyWatch& proxy, cluster::AccessReviewer& reviewer,
            DeltaService& service, std::function<HealthChecks()> checks, ops::MetricSet& metrics,
            ops::EventLog& log)
      : proxy_(proxy),
        reviewer_(reviewer),
        service_(service),
        checks_(std::move(checks)),
        log_(log),
        limit_(options.qps, options.burst),
        counters_(metrics),
        places_(options.threads * (1 + kWaiting)),
        threads_(options.threads) {}
  // Waits for the requests that are being answered.
  ~ApiServer() = default;
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  void Handle(const std::shared_ptr<const http_server::Request>& request,
              const http_server::Respond& respond);

 private:
  // That requests wait for a free thread, as a multiple of the threads.
  static constexpr size_t kWaiting = 4;

  using RequestPtr = std::shared_ptr<const http_server::Request>;

  void Queue(const RequestPtr& request, UserInfo user, const http_server::Respond& respond);
  // These wait for others.
  http_server::Response Answer(const http_server::Request& request, const UserInfo& user);
  http_server::Response Create(const http_server::Request& request, const UserInfo& user,
                               const std::string& name_space);
  http_server::Response Document(const http_server::Request& request, const UserInfo& user);
  http_server::Response Count(http_server::Response response);

  const FrontProxyWatch& proxy_;
  cluster::AccessReviewer& reviewer_;
  DeltaService& service_;
  const std::function<HealthChecks()> checks_;
  ops::EventLog& log_;
  FairLimit limit_;
  RequestCounters counters_;
  FairPlaces places_;   // of requests that are worked on or wait
  ThreadPool threads_;  // last: its tasks use the others
};

// What a path names.
struct ResourceTarget {
  enum class Kind : unsigned char {
    kNone,        // nothing of this API
    kCollection,  // volumesnapshotdeltas of a namespace: where they are created
    kOther,       // of all namespaces, or one of them by name: nothing can be done there
  };
  Kind kind = Kind::kNone;
  std::string name_space = {};
};
ResourceTarget ParseResourcePath(std::string_view path);

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_API_SERVER_H_
