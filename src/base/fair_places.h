// Places that callers share so that none of them can take all.
#ifndef CBT_BASE_FAIR_PLACES_H_
#define CBT_BASE_FAIR_PLACES_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace cbt {

// A caller may hold as many places as are free: the first one half of all, the second half of what
// is left, and so on. However much some hold, the next one finds a place until the last is taken.
// Thread safe.
class FairPlaces {
  struct State {
    std::mutex mutex;
    size_t free;
    std::map<std::string, size_t, std::less<>> held;  // by callers that hold any
  };

 public:
  // Released by the destructor, which may come after that of the pool.
  class Place {
   public:
    Place() = default;  // none
    Place(std::shared_ptr<State> state, std::string who)
        : state_(std::move(state)), who_(std::move(who)) {}
    ~Place() { Release(); }
    Place(Place&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), who_(std::move(other.who_)) {}
    Place& operator=(Place&& other) noexcept {
      if (this == &other) return *this;
      Release();
      state_ = std::exchange(other.state_, nullptr);
      who_ = std::move(other.who_);
      return *this;
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    void Release() noexcept {
      const std::shared_ptr<State> state = std::exchange(state_, nullptr);
      if (state == nullptr) return;
      const std::lock_guard lock(state->mutex);
      ++state->free;
      const auto found = state->held.find(who_);
      if (--found->second == 0) state->held.erase(found);
    }

   private:
    std::shared_ptr<State> state_;
    std::string who_;
  };

  explicit FairPlaces(size_t places) : state_(std::make_shared<State>()) { state_->free = places; }

  // Empty if `who` must not hold another one. Throws std::bad_alloc.
  std::optional<Place> Take(const std::string& who) {
    std::string copy = who;  // nothing may fail once it is counted
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->held.find(who);
    const size_t held = found == state_->held.end() ? 0 : found->second;
    if (held >= state_->free) return std::nullopt;
    if (found == state_->held.end()) {
      state_->held.emplace(who, 1);
    } else {
      ++found->second;
    }
    --state_->free;
    return Place(state_, std::move(copy));
  }

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace cbt

#endif  // CBT_BASE_FAIR_PLACES_H_
