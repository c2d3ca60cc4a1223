// The objects that the controller follows, and what a change of each one wakes.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_WATCHED_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_WATCHED_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/watch.h"
#include "programs/cosi/api/objects.h"

namespace cbt::kube::cosi {

// A key names what needs attention: KIND/NAME or KIND/NAMESPACE/NAME.
struct Key {
  std::string kind = {};
  std::string name_space = {};
  std::string name = {};

  static Key Parse(std::string_view text);
  std::string ToString() const;
};

// Kinds of keys that are no kinds of objects: everything that waits for a Bucket, for a
// BucketRequest, or for a class.
inline constexpr char kWaitForBucket[] = "WaitForBucket";
inline constexpr char kWaitForRequest[] = "WaitForRequest";
inline constexpr char kWaitForBucketClass[] = "WaitForBucketClass";
inline constexpr char kWaitForAccessClass[] = "WaitForAccessClass";

// What is waited for is watched (issue 254 of today's controller): a change of
//   a BucketRequest  wakes it, and the access requests that name it
//   a Bucket         wakes it, its request, the accesses to it, the access requests that name it
//   a class          wakes the requests that are not bound yet
//   a BucketAccess   wakes it, its request and its Bucket
class Watched {
 public:
  using Wake = std::function<void(const std::string& key)>;

  // Starts the watches. The client must outlive the object. Errors: those of ObjectCache::Create().
  static absl::StatusOr<std::unique_ptr<Watched>> Create(Client& client, Wake wake);

  bool synced() const;
  // Wakes everything: for a process that begins to lead.
  void WakeAll() const;
  // Wakes those that wait for what `key` names. False if it names an object.
  bool WakeWaiting(const Key& key) const;

  // As last seen; null if it is not there. Enough to leave an object alone: a change that was not
  // seen yet wakes its key.
  template <typename T>
  std::optional<T> Seen(std::string_view name_space, std::string_view name) const {
    absl::StatusOr<T> value = CacheOf(T::kResource).template FindAs<T>(name_space, name);
    return value.ok() ? std::optional<T>(*std::move(value)) : std::nullopt;
  }

  // As last seen, or else as the API server has it. NOT_FOUND if neither has it.
  absl::StatusOr<BucketClass> FindBucketClass(std::string_view name) const;
  absl::StatusOr<BucketAccessClass> FindAccessClass(std::string_view name) const;

  std::vector<ObjectPtr> BucketClasses() const { return bucket_classes_->All(); }
  std::vector<ObjectPtr> Accesses() const { return accesses_->All(); }
  // Whose spec.bucketName is this.
  std::vector<ObjectPtr> AccessesTo(std::string_view bucket) const;
  // Whose spec.bucketAccessRequest names this request.
  std::vector<ObjectPtr> AccessesFor(const ObjectMeta& request) const;
  // Whose spec.bucketRequest names this request.
  std::vector<ObjectPtr> BucketsFor(const ObjectMeta& request) const;

 private:
  using Caches = std::vector<const ObjectCache*>;

  Watched(Client& client, Wake wake) : client_(client), wake_(std::move(wake)) {}
  Caches All() const;
  const ObjectCache& CacheOf(const Resource& resource) const;
  absl::Status Follow(const Resource& resource, CacheOptions options,
                      std::unique_ptr<ObjectCache>& cache);
  CacheOptions RequestHandlers() const;
  CacheOptions BucketHandlers() const;
  CacheOptions AccessRequestHandlers() const;
  CacheOptions AccessHandlers() const;
  CacheOptions ClassHandlers(const char* kind) const;
  void WakeEach(const Resource& resource, const std::vector<ObjectPtr>& objects) const;
  void WakeUnbound(const ObjectCache& cache, const Resource& resource,
                   std::string_view field) const;

  Client& client_;
  const Wake wake_;
  // Handlers call `wake_` only: they run before all of these are there.
  std::unique_ptr<ObjectCache> requests_;
  std::unique_ptr<ObjectCache> access_requests_;
  std::unique_ptr<ObjectCache> accesses_;
  std::unique_ptr<ObjectCache> buckets_;
  std::unique_ptr<ObjectCache> bucket_classes_;
  std::unique_ptr<ObjectCache> access_classes_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_WATCHED_H_
