#include "programs/revisions/http_sidecar/http_sidecar.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/client.h"
#include "cbt/kube/controller.h"
#include "cbt/kube/watch.h"
#include "ops/event_log.h"
#include "ops/http_page.h"
#include "programs/cluster/component.h"
#include "programs/cluster/driver.h"
#include "programs/cluster/plugin_identity.h"
#include "programs/cluster/plugin_monitor.h"
#include "programs/cluster/publisher.h"
#include "programs/revisions/http_server/http_server.h"
#include "programs/revisions/http_sidecar/page_handler.h"
#include "programs/revisions/http_sidecar/page_maker.h"
#include "programs/revisions/http_sidecar/published_discovery.h"

namespace cbt::kube::http_sidecar {
namespace {

absl::Status CheckOptions(const Options& options) {
  if (options.plugin_timeout.count() <= 0 || options.page_time.count() <= 0 ||
      options.threads == 0) {
    return absl::InvalidArgumentError("times and threads: must be greater than 0");
  }
  if (options.page_time >= options.server.handler_time) {
    return absl::InvalidArgumentError("page time: expected less than the server's own limit");
  }
  if (options.client_ca_file.empty()) {
    return absl::InvalidArgumentError("client CA: callers need certificates");
  }
  if (options.leader_election && options.lease_namespace.empty()) {
    return absl::InvalidArgumentError("leader election: the lease needs a namespace");
  }
  return aggregated::CheckBlockSize(options.discovery.block_size);
}

bool Publishes(const Options& options) {
  return options.discovery.service.has_value() || !options.discovery.url.empty();
}

}  // namespace

class HttpSidecar::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)), log_(options_.log) {}

  ~Impl() { Shutdown(std::chrono::milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Create(options_.cluster.Copy(), options_.client);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    if (absl::Status status = StartHttp(); !status.ok()) return status;
    if (absl::Status status = StartPlugin(); !status.ok()) return status;
    if (absl::Status status = StartServer(); !status.ok()) return status;
    if (absl::Status status = StartElection(); !status.ok()) return status;
    if (absl::Status status = StartPublisher(); !status.ok()) return status;
    started_ = true;
    return absl::OkStatus();
  }

  bool ready() const { return started_ && !draining_ && driver_.ready() && Leads(); }
  absl::Status failure() const { return monitor_->failure(); }
  const http_server::HttpServer& server() const noexcept { return *server_; }
  int http_port() const noexcept { return page_ == nullptr ? 0 : page_->port(); }

  void Shutdown(std::chrono::milliseconds grace) {
    const std::lock_guard lock(shutdown_);
    draining_ = true;
    if (server_ != nullptr) server_->Shutdown(grace);
    // Its thread looks at what ends now.
    page_.reset();
    handler_.reset();
    publisher_.reset();
    monitor_.reset();
    // Another replica may serve now.
    elector_.reset();
    discoveries_.reset();
    client_.reset();
  }

 private:
  bool Leads() const { return elector_ == nullptr || elector_->IsLeader(); }

  absl::Status StartHttp() {
    absl::StatusOr<std::unique_ptr<ops::HttpPage>> page = cluster::ServePages(
        options_.http_endpoint, [this](std::string_view path) { return Page(path); });
    if (!page.ok()) return page.status();
    page_ = *std::move(page);
    return absl::OkStatus();
  }

  absl::Status StartPlugin() {
    absl::StatusOr<std::unique_ptr<PageMaker>> maker =
        PageMaker::Create(options_.plugin, options_.log);
    if (!maker.ok()) return maker.status();
    maker_ = *std::move(maker);
    absl::StatusOr<std::unique_ptr<cluster::PluginIdentity>> plugin =
        cluster::PluginIdentity::Create(options_.plugin, {}, options_.plugin_timeout, {});
    if (!plugin.ok()) return plugin.status();
    monitor_ = std::make_unique<cluster::PluginMonitor>(
        *std::move(plugin), driver_, log_, [this](bool) { maker_->Forget(); },
        // A plugin that has ListSnapshotDeltas only does not say so.
        cluster::PluginNeeds::kNothing);
    return absl::OkStatus();
  }

  absl::Status StartServer() {
    handler_ = std::make_unique<PageHandler>(
        options_, *client_, *maker_, [this] { return ready(); }, log_);
    http_server::ServerOptions server = options_.server;
    server.ask_for_certificate = true;
    server.is_known = [this](const std::vector<std::string>& certificates) {
      return handler_->CheckCaller(certificates).ok();
    };
    absl::StatusOr<std::unique_ptr<http_server::HttpServer>> started =
        http_server::HttpServer::Start(
            server,
            [this](const std::shared_ptr<const http_server::Request>& request,
                   const http_server::Respond& respond) { handler_->Handle(request, respond); },
            log_);
    if (!started.ok()) return started.status();
    server_ = *std::move(started);
    return absl::OkStatus();
  }

  absl::Status StartElection() {
    if (!options_.leader_election) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<LeaderElector>> elector = cluster::TakePart(
        *client_, {options_.lease_namespace, options_.lease, options_.identity}, log_);
    if (!elector.ok()) return elector.status();
    elector_ = *std::move(elector);
    return absl::OkStatus();
  }

  absl::Status StartPublisher() {
    if (!Publishes(options_)) return absl::OkStatus();
    auto discoveries = ObjectCache::Create(*client_, aggregated::kDriverDiscoveries, {});
    if (!discoveries.ok()) return discoveries.status();
    discoveries_ = *std::move(discoveries);
    publisher_ = std::make_unique<cluster::Publisher>(
        *client_,
        std::make_unique<PublishedDiscovery>(options_.discovery, *discoveries_,
                                             [this] { return ready(); }),
        driver_, options_.ca_file, options_.server.certificate_file, log_);
    return absl::OkStatus();
  }

  std::optional<ops::HttpAnswer> Page(std::string_view path) const {
    if (path == "/healthz" || path == "/livez") return cluster::ProbeAnswer(Health());
    if (path == "/readyz") return cluster::ProbeAnswer(ready() ? "" : "not ready");
    if (path == "/metrics") return ops::HttpAnswer{.text = Metrics()};
    return std::nullopt;
  }

  std::string Health() const { return started_ ? cluster::ElectionFault(elector_.get()) : ""; }

  std::string Metrics() const {
    if (!started_) return "";
    const PageCounters& counters = handler_->counters();
    const auto line = [](std::string_view result, uint64_t value) {
      return absl::StrCat("cbt_http_sidecar_pages_total{result=\"", AbslView(result), "\"} ", value,
                          "\n");
    };
    return absl::StrCat("# TYPE cbt_http_sidecar_pages_total counter\n",
                        line("made", counters.pages), line("failed", counters.failed),
                        line("refused", counters.refused), line("limited", counters.limited),
                        "# TYPE cbt_http_sidecar_ready gauge\ncbt_http_sidecar_ready ",
                        ready() ? 1 : 0, "\n");
  }

  const Options options_;
  ops::EventLog log_;
  cluster::Driver driver_;
  std::atomic<bool> started_ = false;
  std::atomic<bool> draining_ = false;
  std::mutex shutdown_;

  // In the order of their beginnings; Shutdown() says in which they end.
  std::unique_ptr<Client> client_;
  std::unique_ptr<ops::HttpPage> page_;
  std::unique_ptr<PageMaker> maker_;
  std::unique_ptr<cluster::PluginMonitor> monitor_;
  std::unique_ptr<PageHandler> handler_;
  std::unique_ptr<http_server::HttpServer> server_;
  std::unique_ptr<LeaderElector> elector_;
  std::unique_ptr<ObjectCache> discoveries_;
  std::unique_ptr<cluster::Publisher> publisher_;
};

absl::StatusOr<std::unique_ptr<HttpSidecar>> HttpSidecar::Start(Options options) {
  return cluster::Start<Impl, HttpSidecar>(std::move(options), [](std::unique_ptr<Impl> impl) {
    return std::unique_ptr<HttpSidecar>(new HttpSidecar(std::move(impl)));
  });
}

HttpSidecar::HttpSidecar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpSidecar::~HttpSidecar() = default;

bool HttpSidecar::ready() const { return impl_->ready(); }

absl::Status HttpSidecar::failure() const { return impl_->failure(); }

const std::string& HttpSidecar::address() const noexcept { return impl_->server().address(); }

int HttpSidecar::http_port() const noexcept { return impl_->http_port(); }

void HttpSidecar::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::kube::http_sidecar
