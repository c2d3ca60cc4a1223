#include "programs/sidecar/sidecar.h"

#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "cbt/kube/client.h"
#include "cbt/rpc/relay.h"
#include "programs/cluster/access_reviewer.h"
#include "programs/cluster/component.h"
#include "programs/cluster/driver.h"
#include "programs/cluster/live_objects.h"
#include "programs/cluster/plugin_identity.h"
#include "programs/cluster/plugin_monitor.h"
#include "programs/cluster/published_object.h"
#include "programs/cluster/publisher.h"
#include "programs/cluster/watched_objects.h"
#include "programs/sidecar/audience.h"
#include "programs/sidecar/authenticator.h"
#include "programs/sidecar/authorizer.h"
#include "programs/sidecar/class_secrets.h"
#include "programs/sidecar/cluster_sessions.h"
#include "programs/sidecar/operations.h"
#include "programs/sidecar/operator_events.h"
#include "programs/sidecar/resolver.h"

namespace cbt::kube::sidecar {
namespace {

// Requests for callers are few and short, and must not wait for lists.
ClientOptions ForCallers(ClientOptions options, bool limited) {
  if (!limited) options.qps = 0;
  options.max_waiting = 1024;
  return options;
}

absl::Status CheckOptions(const Options& options) {
  if (options.plugin_timeout.count() <= 0) {
    return absl::InvalidArgumentError("timeout: must be greater than 0");
  }
  const bool publishes = !options.publication.address.empty() || !options.sessions.address.empty();
  if (publishes && options.relay.tls.certificate_file.empty()) {
    return absl::InvalidArgumentError("publish: needs the file of a certificate");
  }
  if (!options.sessions.address.empty() && options.sessions.name_space.empty()) {
    return absl::InvalidArgumentError("publish sessions: needs the namespace of their data");
  }
  return absl::OkStatus();
}

}  // namespace

// Where records go; outlives all that writes them.
struct Logging {
  explicit Logging(const Options& options)
      : events(options.log), sink(options.events ? &events : options.log) {}

  OperatorEvents events;
  rpc::LogSink* const sink;  // may be null
};

class Sidecar::Impl final : private Logging, public cluster::Component {
 public:
  explicit Impl(Options options)
      : Logging(options),
        Component({.http_endpoint = options.http_endpoint,
                   .page_access = options.page_access,
                   .log = sink}),
        options_(std::move(options)),
        watch_log_(sink),
        operations_(driver_, metrics()) {}

  ~Impl() {
    Shutdown(std::chrono::milliseconds(0));
    monitor_.reset();
    publisher_.reset();
    session_publisher_.reset();
    events.Stop();
    if (watched_ != nullptr) watched_->Stop();
    if (sessions_ != nullptr) sessions_->Stop();
    if (live_.has_value()) live_->Stop();
    // Ends what is still asked of the API server; its answers find everything else in place.
    background_client_.reset();
    client_.reset();
    relay_.reset();
    StopPages();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
    if (absl::Status status = StartPages(options_.relay.tls.certificate_file); !status.ok()) {
      return status;
    }
    if (absl::Status status = StartClients(); !status.ok()) return status;
    if (absl::Status status = StartRelay(); !status.ok()) return status;
    return StartMonitor();
  }

  bool ready() const noexcept { return driver_.ready() && !draining(); }
  absl::Status failure() const { return monitor_->failure(); }
  const rpc::Relay& relay() const noexcept { return *relay_; }
  std::string driver() const { return driver_.name(); }

 private:
  void Stop(std::chrono::milliseconds grace) override {
    if (relay_ != nullptr) relay_->Shutdown(grace);
  }

  // A Service leaves this replica out while each open would ask the API server for every object.
  // Without the right to watch, or without an API server, it is ready all the same.
  ops::HttpAnswer Readiness() const override {
    if (ready()) NoteWatches();
    return cluster::ProbeAnswer(ready() && !watched_->filling() ? "" : "not ready");
  }

  // Says once why each open asks the API server; probes come all the time.
  void NoteWatches() const {
    const absl::Status trouble = watched_->trouble();
    const std::lock_guard lock(trouble_mutex_);
    if (trouble == trouble_) return;
    trouble_ = trouble;
    if (!trouble.ok()) watch_log_.Failed("objects not watched", trouble);
  }

  // The pages of the Go sidecar, and /livez for the kubelet: a plugin that is away makes the sidecar
  // not ready, and restarting it would not help.
  std::optional<ops::HttpAnswer> Page(std::string_view path) const override {
    if (path == "/livez") return Component::Page(path);
    if (path == "/health") return Readiness();
    if (path == options_.metrics_path) return ops::HttpAnswer{.text = operations_.Text()};
    return std::nullopt;
  }

  absl::Status StartClients() {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(
        options_.cluster.Copy(), ForCallers(options_.client, options_.limit_callers));
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    client = Client::Create(options_.cluster.Copy(), options_.client);
    if (!client.ok()) return client.status();
    background_client_ = *std::move(client);
    absl::StatusOr<std::unique_ptr<cluster::WatchedObjects>> watched =
        cluster::WatchedObjects::Create(*background_client_, cluster::Watches::kAll);
    if (!watched.ok()) return watched.status();
    watched_ = *std::move(watched);
    events.Start(*background_client_, driver_, *watched_);
    live_.emplace(*client_, options_.api_timeout, log());
    return StartSessions();
  }

  absl::Status StartSessions() {
    if (options_.sessions.name_space.empty()) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<ClusterSessions>> sessions = ClusterSessions::Create(
        *background_client_, *client_, options_.sessions.name_space, options_.api_timeout, log());
    if (!sessions.ok()) return sessions.status();
    sessions_ = *std::move(sessions);
    return absl::OkStatus();
  }

  absl::Status StartRelay() {
    const bool publishes = !options_.publication.address.empty();
    audience_.emplace(options_.audience, publishes, driver_, *watched_, *live_,
                      OwnAudiences(options_.cluster, log()), log());
    authenticator_.emplace(*client_, *audience_, options_.api_timeout, log());
    reviewer_.emplace(*client_, options_.api_timeout, log());
    authorizer_.emplace(*reviewer_);
    resolver_.emplace(driver_, *watched_, *live_, options_.base_policy, options_.missing_code,
                      log());
    secrets_.emplace(*client_, *watched_, *live_, options_.api_timeout, log());
    rpc::RelayOptions relay = options_.relay;
    relay.service.access = {.authenticator = &*authenticator_,
                            .authorizer = &*authorizer_,
                            .resolver = &*resolver_,
                            .secrets = &*secrets_,
                            .reports_denied = true};
    relay.service.base_is_handle = options_.base_policy != BasePolicy::kName;
    if (sessions_ != nullptr) relay.service.sessions = sessions_.get();
    relay.serving = false;
    relay.service.telemetry = {.observer = &operations_, .log = sink};
    absl::StatusOr<std::unique_ptr<rpc::Relay>> started = rpc::Relay::Start(relay);
    constexpr std::string_view kEveryAddress = "[::]:";
    if (absl::IsUnavailable(started.status()) && relay.listen.starts_with(kEveryAddress)) {
      // A machine without IPv6.
      relay.listen = "0.0.0.0:" + relay.listen.substr(kEveryAddress.size());
      started = rpc::Relay::Start(relay);
    }
    if (!started.ok()) return started.status();
    relay_ = *std::move(started);
    return absl::OkStatus();
  }

  absl::Status StartMonitor() {
    absl::StatusOr<std::unique_ptr<cluster::PluginIdentity>> plugin =
        cluster::PluginIdentity::Create(
            options_.relay.plugin, options_.relay.plugin_tls, options_.plugin_timeout,
            [this](std::string_view method, absl::StatusCode code, std::chrono::nanoseconds time) {
              operations_.OnCall(method, code, time);
            });
    if (!plugin.ok()) return plugin.status();
    monitor_ = std::make_unique<cluster::PluginMonitor>(
        *std::move(plugin), driver_, log(), [this](bool ready) { relay_->SetServing(ready); });
    StartPublishers();
    return absl::OkStatus();
  }

  void StartPublishers() {
    const auto publish = [this](std::unique_ptr<const cluster::PublishedObject> object) {
      return std::make_unique<cluster::Publisher>(*background_client_, std::move(object), driver_,
                                                  options_.publication.ca_file,
                                                  options_.relay.tls.certificate_file, log());
    };
    if (!options_.publication.address.empty()) {
      publisher_ = publish(std::make_unique<cluster::PublishedService>(
          *watched_, driver_, options_.publication.address, options_.audience));
    }
    const SessionOptions& sessions = options_.sessions;
    if (!sessions.address.empty()) {
      session_publisher_ = publish(std::make_unique<cluster::PublishedConfiguration>(
          sessions.address, sessions.configuration, sessions.name_space));
    }
  }

  const Options options_;
  mutable ops::EventLog watch_log_;
  mutable std::mutex trouble_mutex_;
  mutable absl::Status trouble_;  // what was said last
  cluster::Driver driver_;
  Operations operations_;

  // Used by what the clients answer, so they outlive them.
  std::unique_ptr<cluster::WatchedObjects> watched_;
  std::unique_ptr<ClusterSessions> sessions_;
  std::optional<cluster::LiveObjects> live_;
  std::optional<Audience> audience_;
  std::optional<TokenReviewer> authenticator_;
  std::optional<cluster::AccessReviewer> reviewer_;
  std::optional<SnapshotAuthorizer> authorizer_;
  std::optional<ObjectResolver> resolver_;
  std::optional<ClassSecrets> secrets_;

  // In the order of their beginnings; ~Impl() says in which they end.
  std::unique_ptr<Client> client_;             // for callers
  std::unique_ptr<Client> background_client_;  // for watches and publishing
  std::unique_ptr<rpc::Relay> relay_;
  std::unique_ptr<cluster::PluginMonitor> monitor_;
  std::unique_ptr<cluster::Publisher> publisher_;
  std::unique_ptr<cluster::Publisher> session_publisher_;
};

absl::StatusOr<std::unique_ptr<Sidecar>> Sidecar::Start(Options options) {
  return cluster::Start<Impl, Sidecar>(std::move(options), [](std::unique_ptr<Impl> impl) {
    return std::unique_ptr<Sidecar>(new Sidecar(std::move(impl)));
  });
}

Sidecar::Sidecar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Sidecar::~Sidecar() = default;

bool Sidecar::ready() const noexcept { return impl_->ready(); }

absl::Status Sidecar::failure() const { return impl_->failure(); }

const std::string& Sidecar::address() const noexcept { return impl_->relay().address(); }

int Sidecar::port() const noexcept { return impl_->relay().port(); }

int Sidecar::http_port() const noexcept { return impl_->http_port(); }

std::string Sidecar::driver() const { return impl_->driver(); }

void Sidecar::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::kube::sidecar
