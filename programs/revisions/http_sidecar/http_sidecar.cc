#include "programs/revisions/http_sidecar/http_sidecar.h"

#include <utility>
#include <vector>

#include "cbt/kube/client.h"
#include "cbt/kube/watch.h"
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
  return aggregated::CheckBlockSize(options.discovery.block_size);
}

bool Publishes(const Options& options) {
  return options.discovery.service.has_value() || !options.discovery.url.empty();
}

}  // namespace

class HttpSidecar::Impl final : public cluster::Component {
 public:
  explicit Impl(Options options) : Component(options.component), options_(std::move(options)) {
    metrics().AddGauge("cbt_http_sidecar_ready", "1 while this process serves",
                       [this] { return ready() ? 1 : 0; });
  }

  ~Impl() { Shutdown(std::chrono::milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Create(options_.cluster.Copy(), options_.client);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    if (absl::Status status = StartPages(options_.server.certificate_file); !status.ok()) {
      return status;
    }
    if (absl::Status status = StartPlugin(); !status.ok()) return status;
    if (absl::Status status = StartServer(); !status.ok()) return status;
    if (absl::Status status = StartElection(*client_); !status.ok()) return status;
    if (absl::Status status = StartPublisher(); !status.ok()) return status;
    SetStarted();
    return absl::OkStatus();
  }

  bool ready() const { return started() && !draining() && driver_.ready() && Leads(); }
  absl::Status failure() const { return monitor_->failure(); }
  const http_server::HttpServer& server() const noexcept { return *server_; }

 private:
  void Stop(std::chrono::milliseconds grace) override {
    if (server_ != nullptr) server_->Shutdown(grace);
    // Its thread looks at what ends now.
    StopPages();
    handler_.reset();
    publisher_.reset();
    monitor_.reset();
    // Another replica may serve now.
    StopElection();
    discoveries_.reset();
    client_.reset();
  }

  ops::HttpAnswer Readiness() const override {
    return cluster::ProbeAnswer(ready() ? "" : "not ready");
  }

  absl::Status StartPlugin() {
    absl::StatusOr<std::unique_ptr<PageMaker>> maker =
        PageMaker::Create(options_.plugin, options_.component.log);
    if (!maker.ok()) return maker.status();
    maker_ = *std::move(maker);
    absl::StatusOr<std::unique_ptr<cluster::PluginIdentity>> plugin =
        cluster::PluginIdentity::Create(options_.plugin, {}, options_.plugin_timeout, {});
    if (!plugin.ok()) return plugin.status();
    monitor_ = std::make_unique<cluster::PluginMonitor>(
        *std::move(plugin), driver_, log(), [this](bool) { maker_->Forget(); },
        // A plugin that has ListSnapshotDeltas only does not say so.
        cluster::PluginNeeds::kNothing);
    return absl::OkStatus();
  }

  absl::Status StartServer() {
    handler_ = std::make_unique<PageHandler>(
        options_, *client_, *maker_, [this] { return ready(); }, metrics(), log());
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
            log());
    if (!started.ok()) return started.status();
    server_ = *std::move(started);
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
        driver_, options_.ca_file, options_.server.certificate_file, log());
    return absl::OkStatus();
  }

  const Options options_;
  cluster::Driver driver_;

  // In the order of their beginnings; Shutdown() says in which they end.
  std::unique_ptr<Client> client_;
  std::unique_ptr<PageMaker> maker_;
  std::unique_ptr<cluster::PluginMonitor> monitor_;
  std::unique_ptr<PageHandler> handler_;
  std::unique_ptr<http_server::HttpServer> server_;
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
