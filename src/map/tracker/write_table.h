// The writes in flight.
#ifndef CBT_MAP_TRACKER_WRITE_TABLE_H_
#define CBT_MAP_TRACKER_WRITE_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "map/tracker/pin_table.h"

namespace cbt {

// Ranges that threads put in and take out again without a lock, as long as there are places; what
// is more goes into a list under a lock.
class WriteTable {
 public:
  // `pins`: what ranges are published by; must outlive the table.
  WriteTable(size_t places, const PinTable& pins);

  // Puts [begin, end) in; returns where. A Pin() that follows comes after it for whoever waits.
  uint64_t Add(uint64_t begin, uint64_t end);
  void Remove(uint64_t place) noexcept;

  // Calls use(begin, end) for every range that was visible before the call and stays until its end;
  // perhaps for some of the others.
  void ForEach(const std::function<void(uint64_t begin, uint64_t end)>& use) const;

 private:
  struct alignas(64) Place {
    // 0, 1, 2 and 4, 5, 6 ...: free, being filled, filled. Each use has numbers of its own.
    std::atomic<uint64_t> version{0};
    std::atomic<uint64_t> begin{0};
    std::atomic<uint64_t> end{0};
  };
  static constexpr uint64_t kListed = uint64_t{1} << 63;

  const PinTable& pins_;
  std::vector<Place> places_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::pair<uint64_t, uint64_t>> listed_;
  uint64_t next_listed_ = 0;
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_WRITE_TABLE_H_
