#include "programs/sidecar/stranger_limit.h"

#include <algorithm>
#include <iterator>

namespace cbt::kube::sidecar {

std::optional<FairPlaces::Place> StrangerLimit::Enter(const cluster::QuestionKey& token,
                                                      const std::string& peer,
                                                      Clock::time_point now) {
  if (IsKnown(token, now)) return FairPlaces::Place();
  std::optional<FairPlaces::Place> place = places_.Take(peer);
  if (place.has_value() && rate_.Take(peer, now).has_value()) return std::nullopt;
  return place;
}

void StrangerLimit::Recognise(const cluster::QuestionKey& token, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(token); found != index_.end()) {
    found->second->since = now;
    known_.splice(known_.end(), known_, found->second);
    return;
  }
  if (known_.size() >= kMaxKnown) {
    index_.erase(known_.front().token);
    known_.pop_front();
  }
  known_.push_back({.token = token, .since = now});
  index_.emplace(token, std::prev(known_.end()));
}

bool StrangerLimit::IsKnown(const cluster::QuestionKey& token, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(token);
  return found != index_.end() && now - found->second->since < kRemembered;
}

bool CouldBeToken(std::string_view text) noexcept {
  constexpr size_t kMaxToken = size_t{16} * 1024;
  return !text.empty() && text.size() <= kMaxToken &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace cbt::kube::sidecar
