#include "programs/cosi/controller/watched.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::kube::cosi {
namespace {

constexpr char kByBucket[] = "bucket";
constexpr char kByRequest[] = "request";

std::string Pair(std::string_view name_space, std::string_view name) {
  return absl::StrCat(AbslView(name_space), "/", AbslView(name));
}

std::string TextAt(const Object& object, const Path& path) {
  return object.OptionalString(path).value_or(std::nullopt).value_or("");
}

// The request that an object names, as "NAMESPACE/NAME"; empty for none.
std::string RequestOf(const Object& object, std::string_view field) {
  const std::string name = TextAt(object, {"spec", field, "name"});
  return name.empty() ? "" : Pair(TextAt(object, {"spec", field, "namespace"}), name);
}

IndexFunction By(std::function<std::string(const Object&)> value) {
  return [value = std::move(value)](const Object& object) {
    std::vector<std::string> values;
    if (std::string one = value(object); !one.empty()) values.push_back(std::move(one));
    return values;
  };
}

// The same for an object that comes, changes or goes.
CacheOptions Always(std::function<void(const Object&)> changed) {
  CacheOptions options;
  options.handlers = {
      .added = [changed](const ObjectPtr& object) { changed(*object); },
      .updated = [changed](const ObjectPtr&, const ObjectPtr& now) { changed(*now); },
      .deleted = [changed](const ObjectPtr& last) { changed(*last); }};
  return options;
}

bool SameButMetadata(const Object& a, const Object& b) {
  return a.being_deleted() == b.being_deleted() && *a.Child({"spec"}) == *b.Child({"spec"}) &&
         *a.Child({"status"}) == *b.Child({"status"});
}

std::string KeyOf(const Resource& resource, const Object& object) {
  return Key{.kind = std::string(resource.kind),
             .name_space = std::string(object.name_space()),
             .name = std::string(object.name())}
      .ToString();
}

}  // namespace

Key Key::Parse(std::string_view text) {
  Key key;
  const size_t first = text.find('/');
  const size_t last = text.rfind('/');
  key.kind = text.substr(0, first);
  if (last > first) key.name_space = text.substr(first + 1, last - first - 1);
  key.name = text.substr(last + 1);
  return key;
}

std::string Key::ToString() const {
  return name_space.empty() ? Pair(kind, name) : Pair(kind, Pair(name_space, name));
}

absl::StatusOr<std::unique_ptr<Watched>> Watched::Create(Client& client, Wake wake) {
  std::unique_ptr<Watched> made(new Watched(client, std::move(wake)));
  for (absl::Status status :
       {made->Follow(kBucketClasses, made->ClassHandlers(kWaitForBucketClass),
                     made->bucket_classes_),
        made->Follow(kBucketAccessClasses, made->ClassHandlers(kWaitForAccessClass),
                     made->access_classes_),
        made->Follow(kBucketRequests, made->RequestHandlers(), made->requests_),
        made->Follow(kBuckets, made->BucketHandlers(), made->buckets_),
        made->Follow(kBucketAccessRequests, made->AccessRequestHandlers(), made->access_requests_),
        made->Follow(kBucketAccesses, made->AccessHandlers(), made->accesses_)}) {
    if (!status.ok()) return status;
  }
  return made;
}

absl::Status Watched::Follow(const Resource& resource, CacheOptions options,
                             std::unique_ptr<ObjectCache>& cache) {
  auto made = ObjectCache::Create(client_, resource, std::move(options));
  if (!made.ok()) return made.status();
  cache = *std::move(made);
  return absl::OkStatus();
}

CacheOptions Watched::RequestHandlers() const {
  return Always([this](const Object& object) {
    wake_(KeyOf(kBucketRequests, object));
    wake_(Key{kWaitForRequest, std::string(object.name_space()), std::string(object.name())}
              .ToString());
  });
}

CacheOptions Watched::BucketHandlers() const {
  const auto own = [this](const Object& object) {
    wake_(KeyOf(kBuckets, object));
    const std::string request = RequestOf(object, "bucketRequest");
    if (!request.empty()) wake_(Pair(kBucketRequests.kind, request));
  };
  const auto waiting = [this](const Object& object) {
    wake_(Key{kWaitForBucket, "", std::string(object.name())}.ToString());
  };
  CacheOptions options = Always([own, waiting](const Object& object) {
    own(object);
    waiting(object);
  });
  // Finalizers come and go with each access, and nothing waits for them.
  options.handlers.updated = [own, waiting](const ObjectPtr& before, const ObjectPtr& now) {
    own(*before);  // a retained bucket has lost its request
    own(*now);
    if (!SameButMetadata(*before, *now)) waiting(*now);
  };
  options.indexes[kByRequest] =
      By([](const Object& object) { return RequestOf(object, "bucketRequest"); });
  return options;
}

CacheOptions Watched::AccessRequestHandlers() const {
  CacheOptions options =
      Always([this](const Object& object) { wake_(KeyOf(kBucketAccessRequests, object)); });
  options.indexes[kByRequest] = By([](const Object& object) {
    const std::string name = TextAt(object, {"spec", "bucketRequestName"});
    return name.empty() ? "" : Pair(object.name_space(), name);
  });
  options.indexes[kByBucket] = By([](const Object& object) {
    return TextAt(object, {"spec", "bucketName"});
  });
  return options;
}

CacheOptions Watched::AccessHandlers() const {
  CacheOptions options = Always([this](const Object& object) {
    wake_(KeyOf(kBucketAccesses, object));
    const std::string request = RequestOf(object, "bucketAccessRequest");
    if (!request.empty()) wake_(Pair(kBucketAccessRequests.kind, request));
    wake_(Pair(kBuckets.kind, TextAt(object, {"spec", "bucketName"})));
  });
  options.indexes[kByBucket] = By([](const Object& object) {
    return TextAt(object, {"spec", "bucketName"});
  });
  options.indexes[kByRequest] =
      By([](const Object& object) { return RequestOf(object, "bucketAccessRequest"); });
  return options;
}

CacheOptions Watched::ClassHandlers(const char* kind) const {
  return Always([this, kind](const Object&) { wake_(Key{kind, "", "all"}.ToString()); });
}

Watched::Caches Watched::All() const {
  return {requests_.get(), access_requests_.get(), accesses_.get(),
          buckets_.get(),  bucket_classes_.get(),  access_classes_.get()};
}

const ObjectCache& Watched::CacheOf(const Resource& resource) const {
  if (resource.kind == kBucketRequests.kind) return *requests_;
  if (resource.kind == kBuckets.kind) return *buckets_;
  if (resource.kind == kBucketAccessRequests.kind) return *access_requests_;
  return *accesses_;
}

bool Watched::synced() const {
  const Caches all = All();
  return std::all_of(all.begin(), all.end(),
                     [](const ObjectCache* cache) { return cache->state().synced; });
}

void Watched::WakeAll() const {
  WakeEach(kBucketRequests, requests_->All());
  WakeEach(kBuckets, buckets_->All());
  WakeEach(kBucketAccessRequests, access_requests_->All());
  WakeEach(kBucketAccesses, accesses_->All());
}

void Watched::WakeEach(const Resource& resource, const std::vector<ObjectPtr>& objects) const {
  for (const ObjectPtr& object : objects) wake_(KeyOf(resource, *object));
}

void Watched::WakeUnbound(const ObjectCache& cache, const Resource& resource,
                          std::string_view field) const {
  for (const ObjectPtr& object : cache.All()) {
    if (TextAt(*object, {"status", field}).empty()) wake_(KeyOf(resource, *object));
  }
}

bool Watched::WakeWaiting(const Key& key) const {
  if (key.kind == kWaitForBucket) {
    WakeEach(kBucketAccesses, AccessesTo(key.name));
    WakeEach(kBucketAccessRequests, access_requests_->ByIndex(kByBucket, key.name));
  } else if (key.kind == kWaitForRequest) {
    WakeEach(kBucketAccessRequests,
             access_requests_->ByIndex(kByRequest, Pair(key.name_space, key.name)));
  } else if (key.kind == kWaitForBucketClass) {
    WakeUnbound(*requests_, kBucketRequests, "bucketName");
  } else if (key.kind == kWaitForAccessClass) {
    WakeUnbound(*access_requests_, kBucketAccessRequests, "bucketAccessName");
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<BucketClass> Watched::FindBucketClass(std::string_view name) const {
  absl::StatusOr<BucketClass> seen = bucket_classes_->FindAs<BucketClass>("", name);
  if (!absl::IsNotFound(seen.status())) return seen;
  return client_.Get<BucketClass>("", name);
}

absl::StatusOr<BucketAccessClass> Watched::FindAccessClass(std::string_view name) const {
  absl::StatusOr<BucketAccessClass> seen = access_classes_->FindAs<BucketAccessClass>("", name);
  if (!absl::IsNotFound(seen.status())) return seen;
  return client_.Get<BucketAccessClass>("", name);
}

std::vector<ObjectPtr> Watched::AccessesTo(std::string_view bucket) const {
  return accesses_->ByIndex(kByBucket, bucket);
}

std::vector<ObjectPtr> Watched::AccessesFor(const ObjectMeta& request) const {
  return accesses_->ByIndex(kByRequest, Pair(request.name_space, request.name));
}

std::vector<ObjectPtr> Watched::BucketsFor(const ObjectMeta& request) const {
  return buckets_->ByIndex(kByRequest, Pair(request.name_space, request.name));
}

}  // namespace cbt::kube::cosi
