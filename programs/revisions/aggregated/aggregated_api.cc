#include "programs/revisions/aggregated/aggregated_api.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/client.h"
#include "cbt/kube/controller.h"
#include "cbt/kube/watch.h"
#include "ops/event_log.h"
#include "ops/http_page.h"
#include "programs/cluster/component.h"
#include "programs/revisions/aggregated/api_server.h"
#include "programs/revisions/aggregated/authorizer.h"
#include "programs/revisions/aggregated/cluster_objects.h"
#include "programs/revisions/aggregated/delta_service.h"
#include "programs/revisions/aggregated/discovery_controller.h"
#include "programs/revisions/aggregated/front_proxy.h"
#include "programs/revisions/aggregated/upstream.h"
#include "programs/revisions/http_server/http_server.h"

namespace cbt::kube::aggregated {
namespace {

absl::Status CheckOptions(const Options& options) {
  if (options.threads == 0 || options.page_time.count() <= 0 || options.check_time.count() <= 0) {
    return absl::InvalidArgumentError("times and threads: must be greater than 0");
  }
  if (options.page_time >= options.server.handler_time) {
    return absl::InvalidArgumentError("page time: expected less than the server's own limit");
  }
  if (options.page_blocks == 0 || options.page_blocks > kMaxPageBlocks) {
    return absl::InvalidArgumentError(absl::StrCat("page: expected 1 to ", kMaxPageBlocks));
  }
  if (options.leader_election && options.lease_namespace.empty()) {
    return absl::InvalidArgumentError("leader election: the lease needs a namespace");
  }
  return absl::OkStatus();
}

}  // namespace

class AggregatedApi::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)),
        log_(options_.log),
        upstream_(options_.client_certificate_file, options_.client_key_file) {}

  ~Impl() { Shutdown(std::chrono::milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
    if (absl::Status status = StartClients(); !status.ok()) return status;
    if (absl::Status status = StartHttp(); !status.ok()) return status;
    if (absl::Status status = StartElection(); !status.ok()) return status;
    if (absl::Status status = StartObjects(); !status.ok()) return status;
    if (absl::Status status = StartServer(); !status.ok()) return status;
    started_ = true;
    return absl::OkStatus();
  }

  bool ready() const {
    for (const auto& [name, wrong] : Checks()) {
      if (!wrong.empty()) return false;
    }
    return true;
  }
  const http_server::HttpServer& server() const noexcept { return *server_; }
  int http_port() const noexcept { return page_ == nullptr ? 0 : page_->port(); }

  void Shutdown(std::chrono::milliseconds grace) {
    const std::lock_guard lock(shutdown_);
    draining_ = true;
    if (server_ != nullptr) server_->Shutdown(grace);
    upstream_.Stop();
    // Its thread looks at what ends now.
    page_.reset();
    api_.reset();
    // Handlers of watches name objects to the controller, which asks the watches for them.
    if (controller_ != nullptr) controller_->Stop();
    // Nothing acts any more: another process may.
    elector_.reset();
    objects_.reset();
    controller_.reset();
    proxy_.reset();
    // Ends what is still asked; the answers find everything else in place.
    background_client_.reset();
    client_.reset();
  }

 private:
  bool MayAct() const { return !draining_ && (elector_ == nullptr || elector_->IsLeader()); }

  absl::Status StartClients() {
    // What is asked for callers must not wait for lists, nor be turned away by a limit: that of
    // callers is FairLimit.
    ClientOptions for_callers = options_.client;
    for_callers.qps = 0;
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Create(options_.cluster.Copy(), for_callers);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    client = Client::Create(options_.cluster.Copy(), options_.client);
    if (!client.ok()) return client.status();
    background_client_ = *std::move(client);
    return absl::OkStatus();
  }

  absl::Status StartHttp() {
    absl::StatusOr<std::unique_ptr<ops::HttpPage>> page = cluster::ServePages(
        options_.http_endpoint, [this](std::string_view path) { return Page(path); });
    if (!page.ok()) return page.status();
    page_ = *std::move(page);
    return absl::OkStatus();
  }

  absl::Status StartElection() {
    if (!options_.leader_election) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<LeaderElector>> elector = cluster::TakePart(
        *background_client_, {options_.lease_namespace, options_.lease, options_.identity}, log_);
    if (!elector.ok()) return elector.status();
    elector_ = *std::move(elector);
    return absl::OkStatus();
  }

  absl::Status StartObjects() {
    absl::StatusOr<std::unique_ptr<FrontProxyWatch>> proxy =
        FrontProxyWatch::Create(*background_client_, log_);
    if (!proxy.ok()) return proxy.status();
    proxy_ = *std::move(proxy);
    controller_ = std::make_unique<DiscoveryController>(
        *background_client_, upstream_,
        [this](const std::string& name) { return objects_->FindDiscovery(name); },
        [this] { return MayAct(); }, log_);
    CacheOptions discoveries;
    discoveries.resync = options_.check_time;
    discoveries.handlers = {
        .added =
            [this](const ObjectPtr& object) { controller_->Enqueue(std::string(object->name())); },
        .updated =
            [this](const ObjectPtr& before, const ObjectPtr& now) {
              // Not when the controller itself has written the condition.
              if (before == now || before->Int({"metadata", "generation"}).value_or(0) !=
                                       now->Int({"metadata", "generation"}).value_or(0)) {
                controller_->Enqueue(std::string(now->name()));
              }
            }};
    absl::StatusOr<std::unique_ptr<ClusterObjects>> objects =
        ClusterObjects::Create(*background_client_, options_.api_timeout, std::move(discoveries));
    if (!objects.ok()) return objects.status();
    objects_ = *std::move(objects);
    controller_->Start();
    return absl::OkStatus();
  }

  absl::Status StartServer() {
    authorizer_.emplace(*client_, options_.api_timeout, log_);
    service_.emplace(options_, *objects_, *authorizer_, upstream_, log_);
    api_ = std::make_unique<ApiServer>(
        options_, *proxy_, *authorizer_, *service_, [this] { return Checks(); }, log_);
    http_server::ServerOptions server = options_.server;
    server.ask_for_certificate = true;
    server.is_known = [this](const std::vector<std::string>& certificates) {
      const auto proxy = proxy_->Current();
      return proxy.ok() && (*proxy)->Recognise(certificates).ok();
    };
    absl::StatusOr<std::unique_ptr<http_server::HttpServer>> started =
        http_server::HttpServer::Start(
            server,
            [this](const std::shared_ptr<const http_server::Request>& request,
                   const http_server::Respond& respond) { api_->Handle(request, respond); },
            log_);
    if (!started.ok()) return started.status();
    server_ = *std::move(started);
    return absl::OkStatus();
  }

  HealthChecks Checks() const {
    if (!started_) return {{"start", "not started yet"}};
    if (draining_) return {{"shutdown", "the server drains"}};
    const absl::Status proxy = proxy_->Current().status();
    return {{"front-proxy", std::string(proxy.message())},
            {"objects", objects_->current() ? "" : "a watch is not current"},
            {"shutdown", ""}};
  }

  std::optional<ops::HttpAnswer> Page(std::string_view path) const {
    if (path == "/healthz" || path == "/livez") return cluster::ProbeAnswer(Health());
    if (path == "/readyz") {
      const http_server::Response answer = HealthAnswer("readyz", Checks(), "");
      return ops::HttpAnswer{.ok = answer.code == 200, .text = answer.body};
    }
    if (path == "/metrics") return ops::HttpAnswer{.text = Metrics()};
    return std::nullopt;
  }

  std::string Health() const { return started_ ? cluster::ElectionFault(elector_.get()) : ""; }

  std::string Metrics() const {
    if (!started_) return "";
    std::string text;
    const auto line = [&text](std::string_view name, uint64_t value) {
      absl::StrAppend(&text, AbslView(name), " ", value, "\n");
    };
    const auto type = [&text](std::string_view name, std::string_view kind) {
      absl::StrAppend(&text, "# TYPE ", AbslView(name), " ", AbslView(kind), "\n");
    };
    const RequestCounters& requests = api_->counters();
    type("cbt_aggregated_requests_total", "counter");
    line(R"(cbt_aggregated_requests_total{answer="answered"})", requests.answered);
    line(R"(cbt_aggregated_requests_total{answer="refused"})", requests.refused);
    line(R"(cbt_aggregated_requests_total{answer="unauthenticated"})", requests.unauthenticated);
    line(R"(cbt_aggregated_requests_total{answer="limited"})", requests.limited);
    line(R"(cbt_aggregated_requests_total{answer="failed"})", requests.failed);
    const DeltaCounters& pages = service_->counters();
    type("cbt_aggregated_pages_total", "counter");
    line(R"(cbt_aggregated_pages_total{state="Completed"})", pages.completed);
    line(R"(cbt_aggregated_pages_total{state="Continue"})", pages.continued);
    line(R"(cbt_aggregated_pages_total{state="Failed"})", pages.failed);
    type("cbt_aggregated_page_retries_total", "counter");
    line("cbt_aggregated_page_retries_total", pages.retries);
    type("cbt_aggregated_connections", "gauge");
    line("cbt_aggregated_connections", server_->connections());
    type("cbt_aggregated_active", "gauge");
    line("cbt_aggregated_active", MayAct() ? 1 : 0);
    return text;
  }

  const Options options_;
  ops::EventLog log_;
  Upstream upstream_;
  std::atomic<bool> started_ = false;
  std::atomic<bool> draining_ = false;
  std::mutex shutdown_;

  // Used by what the client answers, so they outlive it.
  std::optional<Authorizer> authorizer_;
  std::optional<DeltaService> service_;

  // In the order of their beginnings; Shutdown() says in which they end.
  std::unique_ptr<Client> client_;             // for callers
  std::unique_ptr<Client> background_client_;  // for watches, the lease and conditions
  std::unique_ptr<ops::HttpPage> page_;
  std::unique_ptr<LeaderElector> elector_;
  std::unique_ptr<FrontProxyWatch> proxy_;
  std::unique_ptr<DiscoveryController> controller_;
  std::unique_ptr<ClusterObjects> objects_;
  std::unique_ptr<ApiServer> api_;
  std::unique_ptr<http_server::HttpServer> server_;
};

absl::StatusOr<std::unique_ptr<AggregatedApi>> AggregatedApi::Start(Options options) {
  return cluster::Start<Impl, AggregatedApi>(std::move(options), [](std::unique_ptr<Impl> impl) {
    return std::unique_ptr<AggregatedApi>(new AggregatedApi(std::move(impl)));
  });
}

AggregatedApi::AggregatedApi(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

AggregatedApi::~AggregatedApi() = default;

bool AggregatedApi::ready() const { return impl_->ready(); }

const std::string& AggregatedApi::address() const noexcept { return impl_->server().address(); }

int AggregatedApi::http_port() const noexcept { return impl_->http_port(); }

void AggregatedApi::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::kube::aggregated
