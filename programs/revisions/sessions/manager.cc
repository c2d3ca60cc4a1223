#include "programs/revisions/sessions/manager.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/client.h"
#include "cbt/kube/controller.h"
#include "cbt/kube/watch.h"
#include "ops/event_log.h"
#include "ops/http_page.h"
#include "programs/cluster/component.h"
#include "programs/revisions/http_server/http_server.h"
#include "programs/revisions/sessions/counters.h"
#include "programs/revisions/sessions/session_opener.h"
#include "programs/revisions/sessions/sweeper.h"
#include "programs/revisions/sessions/webhook.h"

namespace cbt::kube::sessions {
namespace {

constexpr WorkQueueOptions kRetries = {.first_retry = std::chrono::milliseconds(100),
                                       .max_retry = std::chrono::seconds(30)};

absl::Status CheckOptions(const Options& options) {
  if (options.session_time < std::chrono::seconds(1)) {
    return absl::InvalidArgumentError("session time: expected at least 1 s");
  }
  if (options.scan_time.count() <= 0 || options.threads == 0) {
    return absl::InvalidArgumentError("scan time and threads: must be greater than 0");
  }
  if (options.leader_election && options.lease_namespace.empty()) {
    return absl::InvalidArgumentError("leader election: the lease needs a namespace");
  }
  return absl::OkStatus();
}

}  // namespace

class Manager::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)), log_(options_.log), queue_(kRetries) {}

  ~Impl() {
    Shutdown(std::chrono::milliseconds(0));
    // Ends what is still asked; the answers find everything else in place.
    client_.reset();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Create(options_.cluster.Copy(), options_.client);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    if (absl::Status status = StartHttp(); !status.ok()) return status;
    if (absl::Status status = StartWebhook(); !status.ok()) return status;
    if (absl::Status status = StartElection(); !status.ok()) return status;
    return StartController();
  }

  bool ready() const {
    return started_ && !draining_ && requests_->state().synced && data_->state().synced;
  }
  const http_server::HttpServer& server() const noexcept { return *server_; }
  int http_port() const noexcept { return page_ == nullptr ? 0 : page_->port(); }

  void Shutdown(std::chrono::milliseconds grace) {
    const std::lock_guard lock(shutdown_);
    draining_ = true;
    if (server_ != nullptr) server_->Shutdown(grace);
    // Its thread looks at what ends now.
    page_.reset();
    scanner_ = {};
    workers_.reset();
    // The lease is released when nothing acts any more.
    elector_.reset();
    // Handlers put keys into the queue.
    requests_.reset();
    data_.reset();
  }

 private:
  bool MayAct() const { return !draining_ && (elector_ == nullptr || elector_->IsLeader()); }

  absl::Status StartHttp() {
    absl::StatusOr<std::unique_ptr<ops::HttpPage>> page = cluster::ServePages(
        options_.http_endpoint, [this](std::string_view path) { return Page(path); });
    if (!page.ok()) return page.status();
    page_ = *std::move(page);
    return absl::OkStatus();
  }

  absl::Status StartWebhook() {
    webhook_.emplace(*client_, options_.api_timeout, counters_, log_);
    absl::StatusOr<std::unique_ptr<http_server::HttpServer>> server =
        http_server::HttpServer::Start(
            options_.webhook,
            [this](const std::shared_ptr<const http_server::Request>& request,
                   const http_server::Respond& respond) { webhook_->Handle(*request, respond); },
            log_);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  absl::Status StartElection() {
    if (!options_.leader_election) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<LeaderElector>> elector =
        cluster::TakePart(*client_, {options_.lease_namespace, options_.lease, options_.identity},
                          log_, [this] { ScanNow(); });
    if (!elector.ok()) return elector.status();
    elector_ = *std::move(elector);
    return absl::OkStatus();
  }

  absl::Status StartController() {
    CacheOptions for_requests;
    const auto enqueue = [this](const ObjectPtr& object) {
      queue_.Add(std::string(object->name_space()) + "/" + std::string(object->name()));
    };
    for_requests.handlers = {
        .added = enqueue,
        .updated = [enqueue](const ObjectPtr&, const ObjectPtr& now) { enqueue(now); },
        .deleted = [this](const ObjectPtr&) { ScanNow(); }};
    auto requests = ObjectCache::Create(*client_, cluster::kSnapshotSessionRequests, for_requests);
    if (!requests.ok()) return requests.status();
    requests_ = *std::move(requests);
    auto data = ObjectCache::Create(*client_, cluster::kSnapshotSessionData, {});
    if (!data.ok()) return data.status();
    data_ = *std::move(data);

    const auto may_act = [this] { return MayAct(); };
    opener_.emplace(*client_, options_.session_time, may_act, counters_, log_);
    sweeper_.emplace(
        *client_, *requests_, *data_, may_act, [this](const std::string& key) { queue_.Add(key); },
        counters_, log_);
    workers_ = std::make_unique<Workers>(
        queue_, options_.threads, [this](const std::string& key) { return opener_->Open(key); },
        [this](const std::string& key, const absl::Status& error) {
          ++counters_.retries;
          log_.Failed("session not opened yet", error, {{.key = "request", .value = key}});
        });
    scanner_ = std::jthread([this](const std::stop_token& stop) { Scan(stop); });
    started_ = true;
    return absl::OkStatus();
  }

  void ScanNow() {
    {
      const std::lock_guard lock(scan_mutex_);
      scan_wanted_ = true;
    }
    scan_.notify_all();
  }

  void Scan(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (MayAct()) {
        try {
          sweeper_->Sweep();
        } catch (const std::exception& error) {
          log_.Failed("scan failed", absl::InternalError(error.what()));
        }
      }
      std::unique_lock lock(scan_mutex_);
      scan_.wait_for(lock, stop, options_.scan_time, [this] { return scan_wanted_; });
      scan_wanted_ = false;
    }
  }

  std::optional<ops::HttpAnswer> Page(std::string_view path) const {
    if (path == "/readyz") return cluster::ProbeAnswer(ready() ? "" : "not ready");
    if (path == "/healthz" || path == "/livez") return cluster::ProbeAnswer(Health());
    if (path == "/metrics") return ops::HttpAnswer{.text = Metrics()};
    return std::nullopt;
  }

  std::string Health() const { return started_ ? cluster::ElectionFault(elector_.get()) : ""; }

  std::string Metrics() const {
    std::string text;
    const auto line = [&text](std::string_view name, uint64_t value) {
      absl::StrAppend(&text, AbslView(name), " ", value, "\n");
    };
    const auto type = [&text](std::string_view name, std::string_view kind) {
      absl::StrAppend(&text, "# TYPE ", AbslView(name), " ", AbslView(kind), "\n");
    };
    type("cbt_session_reviews_total", "counter");
    line(R"(cbt_session_reviews_total{answer="allowed"})", counters_.reviews_allowed);
    line(R"(cbt_session_reviews_total{answer="denied"})", counters_.reviews_denied);
    line(R"(cbt_session_reviews_total{answer="failed"})", counters_.reviews_failed);
    type("cbt_sessions_total", "counter");
    line(R"(cbt_sessions_total{state="Ready"})", counters_.sessions_ready);
    line(R"(cbt_sessions_total{state="Failed"})", counters_.sessions_failed);
    type("cbt_session_retries_total", "counter");
    line("cbt_session_retries_total", counters_.retries);
    type("cbt_session_removed_total", "counter");
    line(R"(cbt_session_removed_total{kind="request"})", counters_.requests_removed);
    line(R"(cbt_session_removed_total{kind="data"})", counters_.data_removed);
    type("cbt_session_manager_active", "gauge");
    line("cbt_session_manager_active", started_ && MayAct() ? 1 : 0);
    return text;
  }

  const Options options_;
  ops::EventLog log_;
  Counters counters_;
  WorkQueue queue_;
  std::atomic<bool> started_ = false;
  std::atomic<bool> draining_ = false;
  std::mutex shutdown_;
  std::mutex scan_mutex_;
  std::condition_variable_any scan_;
  bool scan_wanted_ = false;

  // Used by what the client answers, so they outlive it.
  std::optional<Webhook> webhook_;
  std::optional<SessionOpener> opener_;
  std::optional<Sweeper> sweeper_;

  // In the order of their beginnings; Shutdown() and ~Impl() say in which they end.
  std::unique_ptr<Client> client_;
  std::unique_ptr<ops::HttpPage> page_;
  std::unique_ptr<http_server::HttpServer> server_;
  std::unique_ptr<LeaderElector> elector_;
  std::unique_ptr<ObjectCache> requests_;
  std::unique_ptr<ObjectCache> data_;
  std::unique_ptr<Workers> workers_;
  std::jthread scanner_;
};

absl::StatusOr<std::unique_ptr<Manager>> Manager::Start(Options options) {
  return cluster::Start<Impl, Manager>(std::move(options), [](std::unique_ptr<Impl> impl) {
    return std::unique_ptr<Manager>(new Manager(std::move(impl)));
  });
}

Manager::Manager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Manager::~Manager() = default;

bool Manager::ready() const { return impl_->ready(); }

const std::string& Manager::address() const noexcept { return impl_->server().address(); }

int Manager::port() const noexcept { return impl_->server().port(); }

int Manager::http_port() const noexcept { return impl_->http_port(); }

void Manager::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::kube::sessions
