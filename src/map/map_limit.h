// The size of the maps that a thread makes.
#ifndef CBT_MAP_MAP_LIMIT_H_
#define CBT_MAP_MAP_LIMIT_H_

#include <algorithm>
#include <cstdint>

#include "cbt/change_map.h"

namespace cbt {

// While it lives, a map that its thread makes takes `most` bytes at most: for what others wrote, of
// which a few bytes may stand for a map of any size. Limits nest; the smallest counts.
class MapLimit {
 public:
  explicit MapLimit(uint64_t most) noexcept : before_(current_) {
    current_ = std::min(most, before_);
  }
  ~MapLimit() { current_ = before_; }
  MapLimit(const MapLimit&) = delete;
  MapLimit& operator=(const MapLimit&) = delete;

  static uint64_t Current() noexcept { return current_; }

 private:
  inline static thread_local uint64_t current_ = kMaxMapBytes;
  const uint64_t before_;
};

}  // namespace cbt

#endif  // CBT_MAP_MAP_LIMIT_H_
