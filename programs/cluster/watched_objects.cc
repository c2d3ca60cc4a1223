#include "programs/cluster/watched_objects.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "programs/cluster/kept_fields.h"

namespace cbt::kube::cluster {
namespace {

constexpr char kByHandle[] = "handle";

// Those of `objects` that are wanted.
template <typename T, typename Wanted>
absl::StatusOr<std::vector<T>> Select(const std::vector<ObjectPtr>& objects, Wanted wanted) {
  std::vector<T> selected;
  for (const ObjectPtr& object : objects) {
    absl::StatusOr<T> value = T::Decode(*object);
    if (!value.ok()) return absl::UnavailableError("an object can't be read");
    if (wanted(*value)) selected.push_back(*std::move(value));
  }
  return selected;
}

std::vector<std::string> HandleOf(const Object& object) {
  absl::StatusOr<std::optional<std::string>> handle =
      object.OptionalString({"status", "snapshotHandle"});
  if (!handle.ok() || !handle->has_value()) return {};
  return {**handle};
}

absl::Status Start(Client& client, const Resource& resource, CacheOptions options,
                   std::unique_ptr<FreshCache>& cache) {
  auto made = FreshCache::Create(client, resource, std::move(options));
  if (!made.ok()) return made.status();
  cache = *std::move(made);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WatchedObjects>> WatchedObjects::Create(Client& client,
                                                                       Watches watches) {
  std::unique_ptr<WatchedObjects> made(new WatchedObjects());
  CacheOptions by_handle = ContentCache();
  by_handle.indexes[kByHandle] = HandleOf;
  for (absl::Status status :
       {Start(client, kVolumeSnapshots, SnapshotCache(), made->snapshots_),
        Start(client, kVolumeSnapshotContents, std::move(by_handle), made->contents_),
        Start(client, kVolumeSnapshotClasses, {}, made->classes_)}) {
    if (!status.ok()) return status;
  }
  if (watches == Watches::kAll) {
    absl::Status status = Start(client, kSnapshotMetadataServices, {}, made->services_);
    if (!status.ok()) return status;
  }
  return made;
}

void WatchedObjects::Stop() {
  for (const auto* cache : {&snapshots_, &contents_, &classes_, &services_}) {
    if (*cache != nullptr) (*cache)->Stop();
  }
}

bool WatchedObjects::filling() const {
  const auto caches = {&snapshots_, &contents_, &classes_, &services_};
  return std::ranges::any_of(
      caches, [](const auto* cache) { return *cache != nullptr && (*cache)->filling(); });
}

absl::Status WatchedObjects::trouble() const {
  for (const auto* cache : {&snapshots_, &contents_, &classes_, &services_}) {
    if (*cache == nullptr) continue;
    if (absl::Status trouble = (*cache)->trouble(); !trouble.ok()) return trouble;
  }
  return absl::OkStatus();
}

void WatchedObjects::GetSnapshot(const std::string& name_space, const std::string& name,
                                 Found<VolumeSnapshot> found) {
  found(snapshots_->Get<VolumeSnapshot>(name_space, name));
}

void WatchedObjects::GetContent(const std::string& name, Found<VolumeSnapshotContent> found) {
  found(contents_->Get<VolumeSnapshotContent>("", name));
}

void WatchedObjects::FindContents(const std::string& driver, const std::string& handle,
                                  const std::string&,
                                  Found<std::vector<VolumeSnapshotContent>> found) {
  found(contents_->With([&](const ObjectCache& cache) {
    return Select<VolumeSnapshotContent>(
        cache.ByIndex(kByHandle, handle),
        [&](const VolumeSnapshotContent& content) { return IsContentOf(content, driver, handle); });
  }));
}

void WatchedObjects::GetClass(const std::string& name, Found<VolumeSnapshotClass> found) {
  found(classes_->Get<VolumeSnapshotClass>("", name));
}

void WatchedObjects::FindDefaultClasses(const std::string& driver,
                                        Found<std::vector<VolumeSnapshotClass>> found) {
  found(classes_->With([&](const ObjectCache& cache) {
    return Select<VolumeSnapshotClass>(
        cache.All(), [&](const VolumeSnapshotClass& one) { return IsDefaultFor(one, driver); });
  }));
}

void WatchedObjects::GetService(const std::string& name, Found<SnapshotMetadataService> found) {
  if (services_ == nullptr) return found(absl::UnavailableError("services are not watched"));
  found(services_->Get<SnapshotMetadataService>("", name));
}

}  // namespace cbt::kube::cluster
