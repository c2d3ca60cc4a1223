#include "programs/cluster/fresh_cache.h"

#include <chrono>
#include <mutex>

namespace cbt::kube::cluster {
namespace {

constexpr std::chrono::seconds kMaxBroken{2};
constexpr std::chrono::seconds kSilence{90};

}  // namespace

absl::StatusOr<std::unique_ptr<FreshCache>> FreshCache::Create(Client& client,
                                                               const Resource& resource,
                                                               CacheOptions options) {
  options.silence = kSilence;
  auto cache = ObjectCache::Create(client, resource, std::move(options));
  if (!cache.ok()) return cache.status();
  std::unique_ptr<FreshCache> made(new FreshCache());
  made->cache_ = *std::move(cache);
  return made;
}

void FreshCache::Stop() {
  std::unique_ptr<ObjectCache> cache;
  {
    const std::unique_lock lock(mutex_);
    cache.swap(cache_);
  }
  // Without the lock: the end of a watch waits for the client's thread, which may want to read.
}

bool FreshCache::filling() const {
  const std::shared_lock lock(mutex_);
  if (cache_ == nullptr) return false;
  const CacheState state = cache_->state();
  return !state.synced && state.error.ok();
}

absl::Status FreshCache::trouble() const {
  const std::shared_lock lock(mutex_);
  if (cache_ == nullptr || IsCurrent()) return absl::OkStatus();
  absl::Status error = cache_->state().error;
  const bool passes = absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error);
  return passes ? absl::OkStatus() : error;
}

bool FreshCache::IsCurrent() const {
  return cache_ != nullptr && cache_->CheckFresh(kMaxBroken).ok();
}

ObjectPtr FreshCache::LastSeen(std::string_view name_space, std::string_view name) const {
  const std::shared_lock lock(mutex_);
  return cache_ == nullptr ? nullptr : cache_->Find(name_space, name);
}

}  // namespace cbt::kube::cluster
