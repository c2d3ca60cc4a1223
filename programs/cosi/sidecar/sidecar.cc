#include "programs/cosi/sidecar/sidecar.h"

#include <atomic>
#include <exception>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/stop_wait.h"
#include "base/text.h"
#include "cbt/kube/controller.h"
#include "cbt/kube/watch.h"
#include "programs/cluster/component.h"
#include "programs/cosi/sidecar/granted_accesses.h"
#include "programs/cosi/sidecar/part.h"
#include "programs/cosi/sidecar/provisioned_buckets.h"

namespace cbt::kube::cosi {
namespace {

constexpr WorkQueueOptions kDriverRetries = {.first_retry = std::chrono::milliseconds(250),
                                             .max_retry = std::chrono::minutes(2)};
constexpr std::chrono::milliseconds kListsMissing{200};
// Between two looks at a driver that answers, and at one that does not.
constexpr std::chrono::seconds kDriverLook{10};
constexpr std::chrono::seconds kDriverRetry{1};

constexpr char kOfBucket[] = "bucket";

}  // namespace

class Sidecar::Impl final : public cluster::Component {
 public:
  explicit Impl(SidecarOptions options)
      : Component(options.component), options_(std::move(options)), queue_(kDriverRetries) {
    metrics().AddGauge("cbt_cosi_sidecar_active", "1 while this process may act",
                       [this] { return MayWork() ? 1 : 0; });
  }

  ~Impl() {
    Shutdown(std::chrono::milliseconds(0));
    // Ends what is still asked; the answers find everything else in place.
    client_.reset();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (options_.threads == 0 || options_.call_time.count() <= 0) {
      return absl::InvalidArgumentError("threads and call time: must be greater than 0");
    }
    absl::StatusOr<std::unique_ptr<DriverCalls>> driver = DriverCalls::Create(
        options_.driver_address, options_.call_time,
        [this](const char* method, absl::StatusCode code) { counters_.Count(method, code); });
    if (!driver.ok()) return driver.status();
    driver_ = *std::move(driver);
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Create(options_.cluster.Copy(), options_.client);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    events_.emplace(*client_, "cosi-sidecar", log());
    name_space_ = options_.name_space.empty() ? client_->default_namespace() : options_.name_space;
    if (absl::Status status = StartPages(); !status.ok()) return status;
    follower_ = std::jthread([this](const std::stop_token& stop) { FollowDriver(stop); });
    return absl::OkStatus();
  }

  bool ready() const { return started() && !draining() && driver_ready_ && synced(); }

 private:
  void Stop(std::chrono::milliseconds) override {
    follower_.request_stop();
    if (driver_ != nullptr) driver_->Stop();
    // Its thread starts the rest.
    if (follower_.joinable()) follower_.join();
    StopPages();
    workers_.reset();
    // The lease is released when nothing acts any more. Its thread reads what is watched.
    StopElection();
    buckets_.reset();
    accesses_.reset();
    secrets_.reset();
  }

  ops::HttpAnswer Readiness() const override {
    return cluster::ProbeAnswer(ready() ? "" : "not ready");
  }

  bool synced() const {
    return buckets_->state().synced && accesses_->state().synced && secrets_->state().synced;
  }
  bool MayWork() const { return driver_ready_ && MayAct(); }

  // Waits for the driver, starts the work for it, and goes on asking who it is: one that comes back
  // under another name is not this sidecar's (issue 80 of today's sidecar).
  void FollowDriver(const std::stop_token& stop) {
    absl::Status before;
    do {
      const absl::Status status = Look(stop);
      if (stop.stop_requested()) return;
      if (!status.ok() && status != before) log().Failed("driver not ready", status);
      before = status;
      const bool was_ready = driver_ready_.exchange(status.ok());
      if (status.ok() && !was_ready && started()) WakeAll();
    } while (WaitUnlessStopped(stop, driver_ready_ ? kDriverLook : kDriverRetry));
  }

  absl::Status Look(const std::stop_token& stop) try {
    const absl::StatusOr<std::string> name = driver_->Name(stop);
    if (!name.ok()) return name.status();
    if (!started()) {
      driver_name_ = *name;
      log().Write(rpc::LogLevel::kInfo, "driver ready", {{.key = "driver", .value = *name}});
      return StartWork();
    }
    if (*name != driver_name_) {
      return absl::FailedPreconditionError("the driver has another name than before");
    }
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(error.what());
  }

  absl::Status StartWork() {
    tools_.emplace(SidecarTools{*client_, *driver_, *events_, counters_, log(), driver_name_,
                                name_space_,
                                [this](const std::string& key, std::chrono::milliseconds delay) {
                                  queue_.AddAfter(key, delay);
                                }});
    provisioned_.emplace(*tools_);
    granted_.emplace(*tools_);
    if (absl::Status status = StartWatches(); !status.ok()) return status;
    NameLease(absl::StrCat("cosi-sidecar-", absl::AsciiStrToLower(driver_name_)));
    if (absl::Status status = StartElection(*client_, [this] { WakeAll(); }); !status.ok()) {
      return status;
    }
    workers_ = std::make_unique<Workers>(
        queue_, options_.threads, [this](const std::string& key) { return Reconcile(key); },
        [this](const std::string& key, const absl::Status& error) {
          log().Failed("not done yet", error, {{.key = "object", .value = key}});
        });
    SetStarted();
    return absl::OkStatus();
  }

  absl::Status StartWatches() {
    const std::string ours =
        absl::StrCat(AbslView(kProvisionerLabel), "=", LabelValue(driver_name_));
    CacheOptions of_buckets = Waking("Bucket/");
    of_buckets.label_selector = ours;
    CacheOptions of_accesses = Waking("BucketAccess/");
    of_accesses.label_selector = ours;
    of_accesses.indexes[kOfBucket] = [](const Object& object) {
      return std::vector<std::string>{object.String({"spec", "bucketName"}).value_or("")};
    };
    // Its Secret has the same name.
    of_accesses.handlers.deleted = [this](const ObjectPtr& last) {
      queue_.Add(absl::StrCat("Secret/", AbslView(last->name())));
    };
    CacheOptions of_secrets = Waking("Secret/");
    of_secrets.label_selector = ours;
    of_secrets.name_space = name_space_;
    // Nothing secret is kept here.
    of_secrets.fields = {{"metadata", "labels"}, {"metadata", "annotations"}};
    for (absl::Status status : {Watch(kBuckets, std::move(of_buckets), buckets_),
                                Watch(kBucketAccesses, std::move(of_accesses), accesses_),
                                Watch(kSecrets, std::move(of_secrets), secrets_)}) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Watch(const Resource& resource, CacheOptions options,
                     std::unique_ptr<ObjectCache>& cache) {
    auto made = ObjectCache::Create(*client_, resource, std::move(options));
    if (!made.ok()) return made.status();
    cache = *std::move(made);
    return absl::OkStatus();
  }

  CacheOptions Waking(const char* kind) {
    const auto wake = [this, kind](const ObjectPtr& object) {
      queue_.Add(absl::StrCat(kind, AbslView(object->name())));
    };
    CacheOptions options;
    options.handlers = {.added = wake,
                        .updated = [wake](const ObjectPtr&, const ObjectPtr& now) { wake(now); },
                        .deleted = wake};
    return options;
  }

  void WakeAll() {
    for (const ObjectPtr& one : buckets_->All())
      queue_.Add(absl::StrCat("Bucket/", AbslView(one->name())));
    for (const ObjectPtr& one : accesses_->All())
      queue_.Add(absl::StrCat("BucketAccess/", AbslView(one->name())));
    for (const ObjectPtr& one : secrets_->All())
      queue_.Add(absl::StrCat("Secret/", AbslView(one->name())));
  }

  // What waits for the Bucket.
  void WakeAccessesTo(const std::string& bucket) {
    for (const ObjectPtr& one : accesses_->ByIndex(kOfBucket, bucket)) {
      if (one->Bool({"status", "accessGranted"}).value_or(false)) continue;
      queue_.Add(absl::StrCat("BucketAccess/", AbslView(one->name())));
    }
  }

  absl::Status Reconcile(const std::string& key) {
    if (draining()) return absl::OkStatus();
    // The first Look() is over in a moment.
    if (!started() || !synced()) {
      queue_.AddAfter(key, kListsMissing);
      return absl::OkStatus();
    }
    if (!MayWork()) return absl::OkStatus();
    const size_t slash = key.find('/');
    const std::string name = key.substr(slash + 1);
    if (key.starts_with("BucketAccess/")) return granted_->Reconcile(name);
    if (key.starts_with("Secret/")) return granted_->ReconcileSecret(name);
    WakeAccessesTo(name);
    return provisioned_->Reconcile(name);
  }

  const SidecarOptions options_;
  SidecarCounters counters_{metrics()};
  WorkQueue queue_;
  std::atomic<bool> driver_ready_ = false;
  std::string driver_name_;  // constant once it has started
  std::string name_space_;

  // Used by what the client answers, so they outlive it.
  std::unique_ptr<DriverCalls> driver_;
  std::optional<Events> events_;
  std::optional<SidecarTools> tools_;
  std::optional<ProvisionedBuckets> provisioned_;
  std::optional<GrantedAccesses> granted_;

  // In the order of their beginnings; Stop() and ~Impl() say in which they end.
  std::unique_ptr<Client> client_;
  std::jthread follower_;
  std::unique_ptr<ObjectCache> buckets_;
  std::unique_ptr<ObjectCache> accesses_;
  std::unique_ptr<ObjectCache> secrets_;
  std::unique_ptr<Workers> workers_;
};

absl::StatusOr<std::unique_ptr<Sidecar>> Sidecar::Start(SidecarOptions options) {
  return cluster::Start<Impl, Sidecar>(std::move(options), [](std::unique_ptr<Impl> impl) {
    return std::unique_ptr<Sidecar>(new Sidecar(std::move(impl)));
  });
}

Sidecar::Sidecar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Sidecar::~Sidecar() = default;

bool Sidecar::ready() const { return impl_->ready(); }

int Sidecar::http_port() const noexcept { return impl_->http_port(); }

void Sidecar::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::kube::cosi
