#include "programs/cluster/watched_objects.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "programs/cluster/kept_fields.h"

namespace cbt::kube::cluster {
namespace {

constexpr std::chrono::seconds kMaxBroken{2};
// API servers send a bookmark every minute.
constexpr std::chrono::seconds kSilence{90};
constexpr char kByHandle[] = "handle";

absl::Status NotCurrent() { return absl::UnavailableError("the watch is not current"); }

template <typename T>
absl::StatusOr<T> Find(const ObjectCache& cache, const std::string& name_space,
                       const std::string& name) {
  if (!cache.CheckFresh(kMaxBroken).ok()) return NotCurrent();
  return cache.FindAs<T>(name_space, name);
}

// Those of `objects` that are wanted.
template <typename T, typename Wanted>
absl::StatusOr<std::vector<T>> Select(const ObjectCache& cache,
                                      const std::vector<ObjectPtr>& objects, Wanted wanted) {
  if (!cache.CheckFresh(kMaxBroken).ok()) return NotCurrent();
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
                   std::unique_ptr<ObjectCache>& cache) {
  options.silence = kSilence;
  auto made = ObjectCache::Create(client, resource, std::move(options));
  if (!made.ok()) return made.status();
  cache = *std::move(made);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WatchedObjects>> WatchedObjects::Create(Client& client,
                                                                       Watches watches) {
  std::unique_ptr<WatchedObjects> made(new WatchedObjects());
  made->caches_ = std::make_unique<Caches>();
  Caches& caches = *made->caches_;
  CacheOptions by_handle = ContentCache();
  by_handle.indexes[kByHandle] = HandleOf;
  for (absl::Status status :
       {Start(client, kVolumeSnapshots, SnapshotCache(), caches.snapshots),
        Start(client, kVolumeSnapshotContents, std::move(by_handle), caches.contents),
        Start(client, kVolumeSnapshotClasses, {}, caches.classes)}) {
    if (!status.ok()) return status;
  }
  if (watches == Watches::kAll) {
    absl::Status status = Start(client, kSnapshotMetadataServices, {}, caches.services);
    if (!status.ok()) return status;
  }
  return made;
}

void WatchedObjects::Stop() {
  std::unique_ptr<Caches> caches;
  {
    const std::unique_lock lock(mutex_);
    caches.swap(caches_);
  }
  // Without the lock: the end of a watch waits for the client's thread, which may want to read.
}

template <typename Read>
auto WatchedObjects::With(Read read) const -> decltype(read(std::declval<const Caches&>())) {
  const std::shared_lock lock(mutex_);
  if (caches_ == nullptr) return NotCurrent();
  return read(*caches_);
}

void WatchedObjects::GetSnapshot(const std::string& name_space, const std::string& name,
                                 Found<VolumeSnapshot> found) {
  found(With([&](const Caches& caches) {
    return Find<VolumeSnapshot>(*caches.snapshots, name_space, name);
  }));
}

void WatchedObjects::GetContent(const std::string& name, Found<VolumeSnapshotContent> found) {
  found(With([&](const Caches& caches) {
    return Find<VolumeSnapshotContent>(*caches.contents, "", name);
  }));
}

void WatchedObjects::FindContents(const std::string& driver, const std::string& handle,
                                  const std::string&,
                                  Found<std::vector<VolumeSnapshotContent>> found) {
  found(With([&](const Caches& caches) {
    return Select<VolumeSnapshotContent>(
        *caches.contents, caches.contents->ByIndex(kByHandle, handle),
        [&](const VolumeSnapshotContent& content) { return IsContentOf(content, driver, handle); });
  }));
}

void WatchedObjects::GetClass(const std::string& name, Found<VolumeSnapshotClass> found) {
  found(With(
      [&](const Caches& caches) { return Find<VolumeSnapshotClass>(*caches.classes, "", name); }));
}

void WatchedObjects::FindDefaultClasses(const std::string& driver,
                                        Found<std::vector<VolumeSnapshotClass>> found) {
  found(With([&](const Caches& caches) {
    return Select<VolumeSnapshotClass>(
        *caches.classes, caches.classes->All(),
        [&](const VolumeSnapshotClass& one) { return IsDefaultFor(one, driver); });
  }));
}

void WatchedObjects::GetService(const std::string& name, Found<SnapshotMetadataService> found) {
  found(With([&](const Caches& caches) {
    if (caches.services == nullptr) return absl::StatusOr<SnapshotMetadataService>(NotCurrent());
    return Find<SnapshotMetadataService>(*caches.services, "", name);
  }));
}

}  // namespace cbt::kube::cluster
