// The table of writes in flight.
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

// Ranges that threads add and remove without a lock while there are places; further ones go into a
// list under a lock.
class WriteTable {
 public:
  // `pins`: publishes the ranges; must outlive the table.
  WriteTable(size_t places, const PinTable& pins);

  // Adds [begin, end) and returns its place. For PinTable::Wait(), a later Pin() is ordered after
  // it.
  uint64_t Add(uint64_t begin, uint64_t end);
  void Remove(uint64_t place) noexcept;

  // Calls use(begin, end) for every range that is visible before the call and stays until it
  // returns, and possibly for others.
  void ForEach(const std::function<void(uint64_t begin, uint64_t end)>& use) const;

 private:
  struct alignas(64) Place {
    // Modulo 4: 0 free, 1 being filled, 2 filled. Each use has its own numbers (0 to 2, 4 to 6,
    // ...).
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
