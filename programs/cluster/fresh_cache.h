// Objects of one type, believed only while their watch is current.
#ifndef CBT_PROGRAMS_CLUSTER_FRESH_CACHE_H_
#define CBT_PROGRAMS_CLUSTER_FRESH_CACHE_H_

#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/watch.h"

namespace cbt::kube::cluster {

// An ObjectCache for decisions about callers. Thread safe.
class FreshCache {
 public:
  // Starts the watch. The client must live until Stop(). `options.silence` is set here: API servers
  // send a bookmark every minute. Errors: those of ObjectCache::Create().
  static absl::StatusOr<std::unique_ptr<FreshCache>> Create(Client& client,
                                                            const Resource& resource,
                                                            CacheOptions options = {});
  ~FreshCache() { Stop(); }
  FreshCache(const FreshCache&) = delete;
  FreshCache& operator=(const FreshCache&) = delete;

  // Ends the watch; it is not current any more. Must not run in a callback of the client.
  void Stop();

  // The watch has listed, may list, and was not interrupted for more than two seconds.
  bool current() const {
    const std::shared_lock lock(mutex_);
    return IsCurrent();
  }

  // The first list is under way, and nothing has failed so far.
  bool filling() const;

  // Why the watch is not current, as far as waiting won't help: it may not list, or there is more
  // than it may keep. OK otherwise.
  absl::Status trouble() const;

  // Returns what `read` returns, an absl::StatusOr, for the cache; UNAVAILABLE if the watch is not
  // current. What the cache has may be a moment old, and what it does not have may exist by now.
  template <typename Read>
  auto With(Read read) const -> decltype(read(std::declval<const ObjectCache&>())) {
    const std::shared_lock lock(mutex_);
    if (!IsCurrent()) return absl::UnavailableError("the watch is not current");
    return read(*cache_);
  }
  // The object of this name. Errors: NOT_FOUND, and those of With().
  template <typename T>
  absl::StatusOr<T> Get(const std::string& name_space, const std::string& name) const {
    return With([&](const ObjectCache& cache) -> absl::StatusOr<T> {
      return cache.FindAs<T>(name_space, name);
    });
  }

  // The object as it was seen last, however long ago; null without one. Not for decisions.
  ObjectPtr LastSeen(std::string_view name_space, std::string_view name) const;

 private:
  FreshCache() = default;
  // Requires the lock.
  bool IsCurrent() const;

  // Held while the cache is read.
  mutable std::shared_mutex mutex_;
  std::unique_ptr<ObjectCache> cache_;  // null after Stop()
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_FRESH_CACHE_H_
