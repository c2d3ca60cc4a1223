#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/watch.h"
#include "kube/watch/list_watch.h"
#include "kube/watch/notify.h"
#include "kube/watch/object_store.h"
#include "kube/watch/pruned_object.h"
#include "kube/watch/watch_event.h"

namespace cbt::kube {
namespace {

absl::Status CheckOptions(const CacheOptions& options) {
  if (options.min_watch < std::chrono::seconds(1) || options.max_watch < options.min_watch) {
    return absl::InvalidArgumentError("cache: min_watch and max_watch are out of order");
  }
  if (options.page_size < 1) return absl::InvalidArgumentError("cache: page_size is below 1");
  if (options.list_timeout <= std::chrono::milliseconds(0) ||
      options.silence <= std::chrono::milliseconds(0) ||
      options.resync < std::chrono::milliseconds(0)) {
    return absl::InvalidArgumentError("cache: a time limit is not positive");
  }
  for (const auto& [name, function] : options.indexes) {
    if (!function) {
      return absl::InvalidArgumentError(absl::StrCat("cache: index ", name, " has no function"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

class ObjectCache::Core final : public ChangeSink {
 public:
  Core(Client& client, const Resource& resource, CacheOptions options)
      : options_(std::move(options)),
        target_(resource, options_.name_space),
        store_(options_.indexes),
        list_watch_(client, target_, options_, *this) {}

  const WatchTarget& target() const { return target_; }
  const ObjectStore& store() const { return store_; }
  ListWatch& list_watch() { return list_watch_; }

  void Replace(ObjectMap<Object> objects) override {
    ObjectMap<ObjectPtr> now;
    for (auto& [key, object] : objects) {
      const ObjectPtr before = store_.Find(key.name_space, key.name);
      // What has not changed stays the same object, for those who compare pointers.
      now.emplace_hint(
          now.end(), key,
          before != nullptr && IsSame(*before, object) ? before : Shared(std::move(object)));
    }
    ObjectMap<size_t> sizes;
    size_t bytes = 0;
    if (LimitsBytes()) {
      for (const auto& [key, object] : now) {
        bytes += sizes.emplace(key, KeptBytes(options_, *object)).first->second;
      }
    }
    std::lock_guard lock(handlers_);
    const ObjectMap<ObjectPtr> old = store_.Replace(now);
    sizes_.swap(sizes);
    bytes_ = bytes;
    for (const auto& [key, object] : old) {
      const auto at = now.find(key);
      if (at == now.end() || at->second->uid() != object->uid()) {
        Notify(options_.handlers.deleted, object);
      }
    }
    for (const auto& [key, object] : now) {
      const auto at = old.find(key);
      if (at == old.end() || at->second->uid() != object->uid()) {
        Notify(options_.handlers.added, object);
      } else if (at->second != object) {
        Notify(options_.handlers.updated, at->second, object);
      }
    }
    if (!std::exchange(synced_, true)) Notify(options_.handlers.synced);
  }

  absl::Status Apply(WatchEvent event) override {
    const ObjectPtr object = Shared(std::move(event.object));
    std::lock_guard lock(handlers_);
    if (event.type == WatchEvent::Type::kDeleted) {
      SetSize(*object, 0);
      if (store_.Remove(object->name_space(), object->name()) != nullptr) {
        Notify(options_.handlers.deleted, object);
      }
      return absl::OkStatus();
    }
    if (store_.size() >= options_.max_objects &&
        store_.Find(object->name_space(), object->name()) == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("watch of ", target_.plural, ": more than ",
                                                       options_.max_objects, " objects"));
    }
    if (!SetSize(*object, KeptBytes(options_, *object))) {
      return absl::ResourceExhaustedError(
          absl::StrCat("watch of ", target_.plural, ": more than ", options_.max_bytes, " bytes"));
    }
    const ObjectPtr before = store_.Put(object);
    if (before == nullptr) {
      Notify(options_.handlers.added, object);
    } else if (before->uid() != object->uid()) {
      Notify(options_.handlers.deleted, before);
      Notify(options_.handlers.added, object);
    } else {
      Notify(options_.handlers.updated, before, object);
    }
    return absl::OkStatus();
  }

  void Resync() noexcept override {
    if (!options_.handlers.updated) return;
    std::vector<ObjectPtr> objects;
    try {
      objects = store_.All();
    } catch (const std::bad_alloc&) {
      return;  // there is a next time
    }
    // One at a time, so that no change waits for all.
    for (const ObjectPtr& object : objects) {
      std::lock_guard lock(handlers_);
      if (store_.Find(object->name_space(), object->name()) != object) continue;
      Notify(options_.handlers.updated, object, object);
    }
  }

 private:
  static bool IsSame(const Object& a, const Object& b) {
    return a.resource_version() == b.resource_version() && a.uid() == b.uid();
  }

  static ObjectPtr Shared(Object object) {
    return std::make_shared<const Object>(std::move(object));
  }

  bool LimitsBytes() const { return options_.max_bytes != std::numeric_limits<size_t>::max(); }

  // With the lock. Counts the object with `size` from now on; false if that is too much.
  bool SetSize(const Object& object, size_t size) {
    if (!LimitsBytes()) return true;
    const auto found = sizes_.find(ObjectKeyView{object.name_space(), object.name()});
    const size_t before = found == sizes_.end() ? 0 : found->second;
    if (bytes_ - before + size > options_.max_bytes) return false;
    if (found == sizes_.end()) {
      if (size > 0) sizes_.emplace(KeyOf(object), size);
    } else if (size == 0) {
      sizes_.erase(found);
    } else {
      found->second = size;
    }
    bytes_ = bytes_ - before + size;
    return true;
  }

  const CacheOptions options_;
  const WatchTarget target_;
  ObjectStore store_;
  std::mutex handlers_;  // held while the store changes and handlers run
  bool synced_ = false;
  ObjectMap<size_t> sizes_;  // of what is kept, if that is limited
  size_t bytes_ = 0;         // of all
  ListWatch list_watch_;
};

absl::StatusOr<std::unique_ptr<ObjectCache>> ObjectCache::Create(Client& client,
                                                                 const Resource& resource,
                                                                 CacheOptions options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (const auto path = ResourcePath(resource, options.name_space); !path.ok()) {
    return path.status();
  }
  auto core = std::make_shared<Core>(client, resource, std::move(options));
  core->list_watch().Start();
  return std::unique_ptr<ObjectCache>(new ObjectCache(std::move(core)));
}

ObjectCache::ObjectCache(std::shared_ptr<Core> core) : core_(std::move(core)) {}

ObjectCache::~ObjectCache() { core_->list_watch().Stop(); }

ObjectPtr ObjectCache::Find(std::string_view name_space, std::string_view name) const {
  return core_->store().Find(name_space, name);
}

std::vector<ObjectPtr> ObjectCache::All() const { return core_->store().All(); }

std::vector<ObjectPtr> ObjectCache::ByIndex(std::string_view index, std::string_view value) const {
  return core_->store().ByIndex(index, value);
}

size_t ObjectCache::size() const { return core_->store().size(); }

absl::Status ObjectCache::WaitForSync(std::chrono::milliseconds timeout) const {
  return core_->list_watch().WaitForSync(timeout);
}

absl::Status ObjectCache::CheckFresh(std::chrono::milliseconds max_broken) const {
  return core_->list_watch().CheckFresh(max_broken);
}

CacheState ObjectCache::state() const { return core_->list_watch().state(); }

absl::Status ObjectCache::NotFound(std::string_view name_space, std::string_view name) const {
  return absl::NotFoundError(absl::StrCat(core_->target().kind, " ", AbslView(name_space),
                                          name_space.empty() ? "" : "/", AbslView(name),
                                          " not found"));
}

absl::Status ObjectCache::Undecodable(std::string_view name_space, std::string_view name,
                                      const absl::Status& error) const {
  return absl::UnavailableError(absl::StrCat(core_->target().kind, " ", AbslView(name_space),
                                             name_space.empty() ? "" : "/", AbslView(name), ": ",
                                             error.message()));
}

}  // namespace cbt::kube
