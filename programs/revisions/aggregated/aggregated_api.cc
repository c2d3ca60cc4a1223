#include "programs/revisions/aggregated/aggregated_api.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/watch.h"
#include "ops/certificate_end.h"
#include "programs/cluster/access_reviewer.h"
#include "programs/cluster/component.h"
#include "programs/revisions/aggregated/api_server.h"
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
  return absl::OkStatus();
}

}  // namespace

class AggregatedApi::Impl final : public cluster::Component {
 public:
  explicit Impl(Options options)
      : Component(options.component),
        options_(std::move(options)),
        upstream_(options_.client_certificate_file, options_.client_key_file) {
    metrics().AddGauge("cbt_aggregated_connections", "Open connections",
                       [this] { return static_cast<double>(server_->connections()); });
    metrics().AddGauge("cbt_aggregated_active", "1 while this process writes conditions",
                       [this] { return MayAct() ? 1 : 0; });
  }

  ~Impl() { Shutdown(std::chrono::milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
    if (absl::Status status = StartClients(); !status.ok()) return status;
    if (absl::Status status = StartPages(options_.server.certificate_file); !status.ok()) {
      return status;
    }
    ops::AddCertificateEnd(metrics(), options_.client_certificate_file);
    if (absl::Status status = StartElection(*background_client_); !status.ok()) return status;
    if (absl::Status status = StartObjects(); !status.ok()) return status;
    if (absl::Status status = StartServer(); !status.ok()) return status;
    SetStarted();
    return absl::OkStatus();
  }

  bool ready() const {
    for (const auto& [name, wrong] : Checks()) {
      if (!wrong.empty()) return false;
    }
    return true;
  }
  const http_server::HttpServer& server() const noexcept { return *server_; }

  HealthChecks Checks() const {
    if (!started()) return {{"start", "not started yet"}};
    if (draining()) return {{"shutdown", "the server drains"}};
    const absl::Status proxy = proxy_->Current().status();
    return {{"front-proxy", std::string(proxy.message())},
            {"objects", objects_->current() ? "" : "a watch is not current"},
            {"shutdown", ""}};
  }

 private:
  void Stop(std::chrono::milliseconds grace) override {
    if (server_ != nullptr) server_->Shutdown(grace);
    upstream_.Stop();
    // Its thread looks at what ends now.
    StopPages();
    api_.reset();
    // Handlers of watches name objects to the controller, which asks the watches for them.
    if (controller_ != nullptr) controller_->Stop();
    // Nothing acts any more: another process may.
    StopElection();
    if (objects_ != nullptr) objects_->Stop();
    controller_.reset();
    proxy_.reset();
    // Ends what is still asked; the answers find everything else in place.
    background_client_.reset();
    client_.reset();
    objects_.reset();
  }

  ops::HttpAnswer Readiness() const override {
    const http_server::Response answer = HealthAnswer("readyz", Checks(), "");
    return {.ok = answer.code == 200, .text = answer.body};
  }

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

  absl::Status StartObjects() {
    absl::StatusOr<std::unique_ptr<FrontProxyWatch>> proxy =
        FrontProxyWatch::Create(*background_client_, log());
    if (!proxy.ok()) return proxy.status();
    proxy_ = *std::move(proxy);
    controller_ = std::make_unique<DiscoveryController>(
        *background_client_, upstream_,
        [this](const std::string& name) { return objects_->FindDiscovery(name); },
        [this] { return MayAct(); }, log());
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
    absl::StatusOr<std::unique_ptr<ClusterObjects>> objects = ClusterObjects::Create(
        *background_client_, *client_, options_.api_timeout, std::move(discoveries), log());
    if (!objects.ok()) return objects.status();
    objects_ = *std::move(objects);
    controller_->Start();
    return absl::OkStatus();
  }

  absl::Status StartServer() {
    reviewer_.emplace(*client_, options_.api_timeout, log());
    service_.emplace(options_, *objects_, *reviewer_, upstream_, metrics(), log());
    api_ = std::make_unique<ApiServer>(
        options_, *proxy_, *reviewer_, *service_, [this] { return Checks(); }, metrics(), log());
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
            log());
    if (!started.ok()) return started.status();
    server_ = *std::move(started);
    return absl::OkStatus();
  }

  const Options options_;
  Upstream upstream_;

  // Used by what the client answers, so they outlive it.
  std::optional<cluster::AccessReviewer> reviewer_;
  std::optional<DeltaService> service_;

  // In the order of their beginnings; Shutdown() says in which they end.
  std::unique_ptr<Client> client_;             // for callers
  std::unique_ptr<Client> background_client_;  // for watches, the lease and conditions
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
