#include "programs/revisions/aggregated/cluster_objects.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "programs/cluster/kept_fields.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::aggregated {
namespace {

// A watch that was interrupted for longer is not believed.
constexpr std::chrono::seconds kMostBroken{2};
constexpr std::chrono::seconds kSilence{90};  // API servers send a bookmark every minute
constexpr char kByDriver[] = "driver";

std::string NameOf(const Resource& resource, const std::string& name_space,
                   const std::string& name) {
  return absl::StrCat(AbslView(resource.kind), " ", name_space, name_space.empty() ? "" : "/",
                      name);
}

// As this class reports them.
absl::Status Unfit(const absl::Status& error) {
  return absl::IsInvalidArgument(error) ? absl::FailedPreconditionError(error.message()) : error;
}

std::vector<std::string> DriverOf(const Object& object) {
  const absl::StatusOr<std::string> driver = object.String({"spec", "driverName"});
  if (!driver.ok()) return {};
  return {*driver};
}

absl::Status Watch(Client& client, const Resource& resource, CacheOptions options,
                   std::unique_ptr<ObjectCache>& cache) {
  options.silence = kSilence;
  absl::StatusOr<std::unique_ptr<ObjectCache>> made =
      ObjectCache::Create(client, resource, std::move(options));
  if (!made.ok()) return made.status();
  cache = *std::move(made);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterObjects>> ClusterObjects::Create(
    Client& client, std::chrono::milliseconds timeout, CacheOptions discoveries) {
  std::unique_ptr<ClusterObjects> made(new ClusterObjects(client, timeout));
  discoveries.indexes[kByDriver] = DriverOf;
  for (absl::Status status :
       {Watch(client, kVolumeSnapshots, cluster::SnapshotCache(), made->snapshots_),
        Watch(client, kVolumeSnapshotContents, cluster::ContentCache(), made->contents_),
        Watch(client, kVolumeSnapshotClasses, {}, made->classes_),
        Watch(client, kDriverDiscoveries, std::move(discoveries), made->discoveries_)}) {
    if (!status.ok()) return status;
  }
  return made;
}

bool ClusterObjects::current() const {
  // The other objects are asked of the API server while their watches are not current: tenants,
  // who may write more than a cache keeps, do not decide whether this server is ready.
  return discoveries_->CheckFresh(kMostBroken).ok();
}

template <typename T>
absl::StatusOr<T> ClusterObjects::Find(const ObjectCache& cache, const std::string& name_space,
                                       const std::string& name) const {
  if (cache.CheckFresh(kMostBroken).ok()) {
    absl::StatusOr<T> seen = cache.FindAs<T>(name_space, name);
    if (seen.ok()) return seen;
  }
  GetOptions options;
  options.timeout = timeout_;
  absl::StatusOr<T> live = client_.Get<T>(name_space, name, options);
  if (live.ok()) return live;
  if (absl::IsNotFound(live.status())) {
    return absl::NotFoundError(
        absl::StrCat(NameOf(T::kResource, name_space, name), " does not exist"));
  }
  return absl::UnavailableError(
      absl::StrCat(NameOf(T::kResource, name_space, name), " can't be read now"));
}

absl::StatusOr<ClusterObjects::Found> ClusterObjects::FindSnapshot(const std::string& name_space,
                                                                   const std::string& name) const {
  const auto snapshot = Find<VolumeSnapshot>(*snapshots_, name_space, name);
  if (!snapshot.ok()) return snapshot.status();
  const absl::StatusOr<std::string> content_name = cluster::ContentNameOf(*snapshot);
  if (!content_name.ok()) return content_name.status();
  const auto content = Find<VolumeSnapshotContent>(*contents_, "", *content_name);
  if (!content.ok()) return content.status();
  absl::StatusOr<cluster::BoundSnapshot> bound =
      cluster::Bind(*snapshot, *content, content->driver);
  if (!bound.ok()) return Unfit(bound.status());
  return Found{.bound = *std::move(bound),
               .driver = content->driver,
               .identity = absl::StrCat(snapshot->meta.uid, "/", content->meta.uid)};
}

absl::StatusOr<SnapshotPair> ClusterObjects::FindSnapshots(const std::string& name_space,
                                                           const std::optional<std::string>& base,
                                                           const std::string& target) const {
  absl::StatusOr<Found> of_target = FindSnapshot(name_space, target);
  if (!of_target.ok()) return of_target.status();
  SnapshotPair pair = {.driver = of_target->driver,
                       .base = {},
                       .target = std::move(of_target->bound),
                       .identity = of_target->identity};
  if (!base.has_value()) return pair;
  absl::StatusOr<Found> of_base = FindSnapshot(name_space, *base);
  if (!of_base.ok()) return of_base.status();
  if (of_base->driver != pair.driver) {
    return absl::FailedPreconditionError(
        absl::StrCat("the snapshots are of different drivers: ", *base, " of ", of_base->driver,
                     ", ", target, " of ", pair.driver));
  }
  if (absl::Status status = cluster::CheckPair(of_base->bound, pair.target); !status.ok()) {
    return Unfit(status);
  }
  pair.base = std::move(of_base->bound);
  absl::StrAppend(&pair.identity, "-", of_base->identity);
  return pair;
}

absl::StatusOr<DriverDiscovery> ClusterObjects::FindDriver(const std::string& driver) const {
  if (!discoveries_->CheckFresh(kMostBroken).ok()) {
    return absl::UnavailableError("DriverDiscovery objects can't be read now");
  }
  const std::vector<ObjectPtr> found = discoveries_->ByIndex(kByDriver, driver);
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

absl::StatusOr<std::optional<VolumeSnapshotClass>> ClusterObjects::FindClass(
    const SnapshotPair& pair) const {
  const std::string name = pair.target.class_name.value_or("");
  if (!name.empty()) {
    absl::StatusOr<VolumeSnapshotClass> one = Find<VolumeSnapshotClass>(*classes_, "", name);
    if (!one.ok()) return one.status();
    // The secrets of one driver are not for another.
    if (one->driver != pair.driver) {
      return absl::FailedPreconditionError(
          absl::StrCat("VolumeSnapshotClass ", name, " is one of another driver"));
    }
    return *std::move(one);
  }
  if (!classes_->CheckFresh(kMostBroken).ok()) {
    return absl::UnavailableError("VolumeSnapshotClass objects can't be read now");
  }
  std::optional<VolumeSnapshotClass> found;
  for (const ObjectPtr& object : classes_->All()) {
    absl::StatusOr<VolumeSnapshotClass> one = VolumeSnapshotClass::Decode(*object);
    if (!one.ok() || !cluster::IsDefaultFor(*one, pair.driver)) continue;
    if (found.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the driver ", pair.driver, " has more than one default class"));
    }
    found = *std::move(one);
  }
  return found;
}

absl::StatusOr<std::optional<cluster::SecretName>> ClusterObjects::FindSecret(
    const SnapshotPair& pair) const {
  const absl::StatusOr<std::optional<VolumeSnapshotClass>> one = FindClass(pair);
  if (!one.ok()) return one.status();
  if (!one->has_value()) return std::optional<cluster::SecretName>();
  absl::StatusOr<std::optional<cluster::SecretName>> secret =
      cluster::SecretOf(**one, {.snapshot_namespace = pair.target.name_space,
                                .snapshot_name = pair.target.name,
                                .content_name = pair.target.content});
  if (!secret.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("VolumeSnapshotClass ", (*one)->meta.name, ": ", secret.status().message()));
  }
  return secret;
}

}  // namespace cbt::kube::aggregated
