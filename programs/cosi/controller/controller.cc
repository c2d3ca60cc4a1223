#include "programs/cosi/controller/controller.h"

#include <exception>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/stop_wait.h"
#include "cbt/kube/controller.h"
#include "programs/cluster/component.h"
#include "programs/cosi/controller/access_requests.h"
#include "programs/cosi/controller/accesses.h"
#include "programs/cosi/controller/bucket_requests.h"
#include "programs/cosi/controller/buckets.h"
#include "programs/cosi/controller/part.h"
#include "programs/cosi/controller/pod_sweeper.h"

namespace cbt::kube::cosi {
namespace {

constexpr WorkQueueOptions kRetries = {.first_retry = std::chrono::milliseconds(100),
                                       .max_retry = std::chrono::minutes(1)};
// Until the first lists are complete.
constexpr std::chrono::milliseconds kNotSynced{200};

absl::Status CheckOptions(const ControllerOptions& options) {
  if (options.threads == 0 || options.sweep_time.count() <= 0 || options.revoke_time.count() < 0) {
    return absl::InvalidArgumentError(
        "threads and sweep time: must be greater than 0; revoke time: not negative");
  }
  return absl::OkStatus();
}

}  // namespace

class Controller::Impl final : public cluster::Component {
 public:
  explicit Impl(ControllerOptions options)
      : Component(options.component), options_(std::move(options)), queue_(kRetries) {
    metrics().AddGauge("cbt_cosi_controller_active", "1 while this process may act",
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
    events_.emplace(*client_, "cosi-controller", log());
    if (absl::Status status = StartPages(); !status.ok()) return status;
    absl::StatusOr<std::unique_ptr<Watched>> watched =
        Watched::Create(*client_, [this](const std::string& key) { queue_.Add(key); });
    if (!watched.ok()) return watched.status();
    watched_ = *std::move(watched);
    tools_.emplace(Tools{*client_, *watched_, *events_, counters_, log(), options_,
                         [this](const std::string& key, std::chrono::milliseconds delay) {
                           queue_.AddAfter(key, delay);
                         }});
    if (absl::Status status = StartElection(*client_, [this] { watched_->WakeAll(); });
        !status.ok())
      return status;
    StartWork();
    SetStarted();
    return absl::OkStatus();
  }

  bool ready() const { return started() && !draining() && watched_->synced(); }

 private:
  void Stop(std::chrono::milliseconds) override {
    // Its thread looks at what ends now.
    StopPages();
    sweeper_ = {};
    workers_.reset();
    // The lease is released when nothing acts any more. Its thread reads what is watched.
    StopElection();
    watched_.reset();
  }

  ops::HttpAnswer Readiness() const override {
    return cluster::ProbeAnswer(ready() ? "" : "not ready");
  }

  void StartWork() {
    bucket_requests_.emplace(*tools_);
    buckets_.emplace(*tools_);
    access_requests_.emplace(*tools_);
    accesses_.emplace(*tools_);
    pods_.emplace(*tools_);
    workers_ = std::make_unique<Workers>(
        queue_, options_.threads, [this](const std::string& key) { return Reconcile(key); },
        [this](const std::string& key, const absl::Status& error) {
          ++counters_.retries;
          log().Failed("not done yet", error, {{.key = "object", .value = key}});
        });
    sweeper_ = std::jthread([this](const std::stop_token& stop) { Sweep(stop); });
  }

  absl::Status Reconcile(const std::string& text) {
    if (draining()) return absl::OkStatus();
    // Decisions need all lists.
    if (!watched_->synced()) {
      queue_.AddAfter(text, kNotSynced);
      return absl::OkStatus();
    }
    if (!MayAct()) return absl::OkStatus();
    const Key key = Key::Parse(text);
    if (watched_->WakeWaiting(key)) return absl::OkStatus();
    if (key.kind == kBucketRequests.kind) return bucket_requests_->Reconcile(key);
    if (key.kind == kBuckets.kind) return buckets_->Reconcile(key);
    if (key.kind == kBucketAccessRequests.kind) return access_requests_->Reconcile(key);
    return accesses_->Reconcile(key);
  }

  void Sweep(const std::stop_token& stop) {
    do {
      if (!MayAct() || !watched_->synced()) continue;
      try {
        pods_->Sweep();
      } catch (const std::exception& error) {
        log().Failed("sweep failed", absl::InternalError(error.what()));
      }
    } while (WaitUnlessStopped(stop, options_.sweep_time));
  }

  const ControllerOptions options_;
  ControllerCounters counters_{metrics()};
  WorkQueue queue_;

  // Used by what the client answers, so they outlive it.
  std::optional<Events> events_;
  std::optional<Tools> tools_;
  std::optional<BucketRequests> bucket_requests_;
  std::optional<Buckets> buckets_;
  std::optional<AccessRequests> access_requests_;
  std::optional<Accesses> accesses_;
  std::optional<PodSweeper> pods_;

  // In the order of their beginnings; Stop() and ~Impl() say in which they end.
  std::unique_ptr<Client> client_;
  std::unique_ptr<Watched> watched_;
  std::unique_ptr<Workers> workers_;
  std::jthread sweeper_;
};

absl::StatusOr<std::unique_ptr<Controller>> Controller::Start(ControllerOptions options) {
  return cluster::Start<Impl, Controller>(std::move(options), [](std::unique_ptr<Impl> impl) {
    return std::unique_ptr<Controller>(new Controller(std::move(impl)));
  });
}

Controller::Controller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Controller::~Controller() = default;

bool Controller::ready() const { return impl_->ready(); }

int Controller::http_port() const noexcept { return impl_->http_port(); }

void Controller::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::kube::cosi
