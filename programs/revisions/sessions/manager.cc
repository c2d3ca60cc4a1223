#include "programs/revisions/sessions/manager.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "cbt/kube/client.h"
#include "cbt/kube/watch.h"
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
  return absl::OkStatus();
}

}  // namespace

class Manager::Impl final : public cluster::Component {
 public:
  explicit Impl(Options options)
      : Component(options.component), options_(std::move(options)), queue_(kRetries) {
    metrics().AddGauge("cbt_session_manager_active", "1 while this process may act",
                       [this] { return MayAct() ? 1 : 0; });
  }

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
    if (absl::Status status = StartPages(options_.webhook.certificate_file); !status.ok()) {
      return status;
    }
    if (absl::Status status = StartWebhook(); !status.ok()) return status;
    if (absl::Status status = StartElection(*client_, [this] { ScanNow(); }); !status.ok())
      return status;
    return StartController();
  }

  bool ready() const {
    return started() && !draining() && requests_->state().synced && data_->state().synced;
  }
  const http_server::HttpServer& server() const noexcept { return *server_; }

 private:
  void Stop(std::chrono::milliseconds grace) override {
    if (server_ != nullptr) server_->Shutdown(grace);
    // Its thread looks at what ends now.
    StopPages();
    scanner_ = {};
    workers_.reset();
    // The lease is released when nothing acts any more.
    StopElection();
    // Handlers put keys into the queue.
    requests_.reset();
    data_.reset();
  }

  ops::HttpAnswer Readiness() const override {
    return cluster::ProbeAnswer(ready() ? "" : "not ready");
  }

  absl::Status StartWebhook() {
    webhook_.emplace(*client_, options_.api_timeout, counters_, log());
    absl::StatusOr<std::unique_ptr<http_server::HttpServer>> server =
        http_server::HttpServer::Start(
            options_.webhook,
            [this](const std::shared_ptr<const http_server::Request>& request,
                   const http_server::Respond& respond) { webhook_->Handle(*request, respond); },
            log());
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
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
    opener_.emplace(*client_, options_.session_time, may_act, counters_, log());
    sweeper_.emplace(
        *client_, *requests_, *data_, may_act, [this](const std::string& key) { queue_.Add(key); },
        counters_, log());
    workers_ = std::make_unique<Workers>(
        queue_, options_.threads, [this](const std::string& key) { return opener_->Open(key); },
        [this](const std::string& key, const absl::Status& error) {
          ++counters_.retries;
          log().Failed("session not opened yet", error, {{.key = "request", .value = key}});
        });
    scanner_ = std::jthread([this](const std::stop_token& stop) { Scan(stop); });
    SetStarted();
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
          log().Failed("scan failed", absl::InternalError(error.what()));
        }
      }
      std::unique_lock lock(scan_mutex_);
      scan_.wait_for(lock, stop, options_.scan_time, [this] { return scan_wanted_; });
      scan_wanted_ = false;
    }
  }

  const Options options_;
  Counters counters_{metrics()};
  WorkQueue queue_;
  std::mutex scan_mutex_;
  std::condition_variable_any scan_;
  bool scan_wanted_ = false;

  // Used by what the client answers, so they outlive it.
  std::optional<Webhook> webhook_;
  std::optional<SessionOpener> opener_;
  std::optional<Sweeper> sweeper_;

  // In the order of their beginnings; Shutdown() and ~Impl() say in which they end.
  std::unique_ptr<Client> client_;
  std::unique_ptr<http_server::HttpServer> server_;
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
