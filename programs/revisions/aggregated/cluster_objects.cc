#include "programs/revisions/aggregated/cluster_objects.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "programs/cluster/snapshot_lookup.h"

namespace cbt::kube::aggregated {
namespace {

constexpr char kByDriver[] = "driver";

std::vector<std::string> DriverOf(const Object& object) {
  const absl::StatusOr<std::string> driver = object.String({"spec", "driverName"});
  if (!driver.ok()) return {};
  return {*driver};
}

absl::StatusOr<SnapshotPair> PairOf(const BoundSnapshot& base, const BoundSnapshot& target) {
  if (base.driver != target.driver) {
    return absl::FailedPreconditionError(
        absl::StrCat("the snapshots are of different drivers: ", base.name, " of ", base.driver,
                     ", ", target.name, " of ", target.driver));
  }
  // As this class reports them.
  if (const absl::Status fit = CheckPair(base, target); !fit.ok()) {
    return absl::FailedPreconditionError(fit.message());
  }
  return SnapshotPair{.base = base, .target = target};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterObjects>> ClusterObjects::Create(
    Client& watches, Client& callers, std::chrono::milliseconds timeout, CacheOptions discoveries,
    ops::EventLog& log) {
  std::unique_ptr<ClusterObjects> made(new ClusterObjects(callers, timeout, log));
  auto watched = cluster::WatchedObjects::Create(watches, cluster::Watches::kSnapshots);
  if (!watched.ok()) return watched.status();
  made->watched_ = *std::move(watched);
  discoveries.indexes[kByDriver] = DriverOf;
  auto cache = cluster::FreshCache::Create(watches, kDriverDiscoveries, std::move(discoveries));
  if (!cache.ok()) return cache.status();
  made->discoveries_ = *std::move(cache);
  return made;
}

void ClusterObjects::Stop() {
  watched_->Stop();
  live_->Stop();
  discoveries_->Stop();
}

absl::StatusOr<SnapshotPair> ClusterObjects::FindSnapshots(const std::string& name_space,
                                                           const std::optional<std::string>& base,
                                                           const std::string& target) const {
  using Found = cluster::Found<SnapshotPair>;
  const auto find = [name_space, base, target](cluster::Objects& objects, const Found& found) {
    cluster::FindBound(
        objects, name_space, target, {},
        [&objects, name_space, base, found](absl::StatusOr<BoundSnapshot> of_target) {
          if (!of_target.ok()) return found(of_target.status());
          if (!base.has_value()) return found(SnapshotPair{.target = *std::move(of_target)});
          cluster::FindBound(objects, name_space, *base, {},
                             [of_target, found](const absl::StatusOr<BoundSnapshot>& of_base) {
                               if (!of_base.ok()) return found(of_base.status());
                               found(PairOf(*of_base, *of_target));
                             });
        });
  };
  return cluster::Await<absl::StatusOr<SnapshotPair>>([&](Found found) {
    cluster::FindWatchedOrLive<SnapshotPair>(*watched_, *live_, find, std::move(found));
  });
}

absl::StatusOr<DriverDiscovery> ClusterObjects::FindDriver(const std::string& driver) const {
  using Discoveries = absl::StatusOr<std::vector<ObjectPtr>>;
  const Discoveries all = discoveries_->With([&driver](const ObjectCache& cache) -> Discoveries {
    return cache.ByIndex(kByDriver, driver);
  });
  if (!all.ok()) return absl::UnavailableError("DriverDiscovery objects can't be read now");
  const std::vector<ObjectPtr>& found = *all;
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("no DriverDiscovery names the driver ", driver,
                                            ": is its cbt-cluster http-sidecar running?"));
  }
  if (found.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("more than one DriverDiscovery names the driver ", driver, ": ",
                     AbslView(found[0]->name()), ", ", AbslView(found[1]->name())));
  }
  absl::StatusOr<DriverDiscovery> discovery = DriverDiscovery::Decode(*found.front());
  if (!discovery.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "DriverDiscovery ", AbslView(found.front()->name()), ": ", discovery.status().message()));
  }
  return discovery;
}

absl::StatusOr<std::optional<cluster::SecretName>> ClusterObjects::FindSecret(
    const BoundSnapshot& snapshot) const {
  using Class = std::optional<VolumeSnapshotClass>;
  const absl::StatusOr<Class> one =
      cluster::Await<absl::StatusOr<Class>>([&](cluster::Found<Class> found) {
        cluster::FindWatchedOrLive<Class>(
            *watched_, *live_,
            [snapshot](cluster::Objects& objects, const cluster::Found<Class>& answer) {
              cluster::FindClass(objects, snapshot, answer);
            },
            std::move(found));
      });
  if (!one.ok()) return one.status();
  if (!one->has_value()) return std::optional<cluster::SecretName>();
  absl::StatusOr<std::optional<cluster::SecretName>> secret =
      cluster::SecretOf(**one, {.snapshot_namespace = snapshot.name_space,
                                .snapshot_name = snapshot.name,
                                .content_name = snapshot.content});
  if (!secret.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("VolumeSnapshotClass ", (*one)->meta.name, ": ", secret.status().message()));
  }
  return secret;
}

}  // namespace cbt::kube::aggregated
