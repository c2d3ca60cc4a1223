#include "programs/revisions/http_server/body_memory.h"

#include <utility>

namespace cbt::kube::http_server {

bool BodyMemory::Share::Grow(size_t bytes) {
  if (bytes <= bytes_) return true;
  if (!memory_->Take(peer_, bytes - bytes_)) return false;
  bytes_ = bytes;
  return true;
}

size_t BodyMemory::HeldBy(const std::string& peer) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(peer);
  return found == peers_.end() ? 0 : found->second;
}

bool BodyMemory::Take(const std::string& peer, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_ - held_) return false;
  size_t& held = peers_[peer];
  if (bytes > peer_limit_ - held) {
    if (held == 0) peers_.erase(peer);
    return false;
  }
  held += bytes;
  held_ += bytes;
  return true;
}

void BodyMemory::Release(const std::string& peer, size_t bytes) noexcept {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(peer);
  held_ -= bytes;
  found->second -= bytes;
  if (found->second == 0) peers_.erase(found);
}

}  // namespace cbt::kube::http_server
