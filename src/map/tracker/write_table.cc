#include "map/tracker/write_table.h"

namespace cbt {

WriteTable::WriteTable(size_t places, const PinTable& pins) : pins_(pins), places_(places) {}

uint64_t WriteTable::Add(uint64_t begin, uint64_t end) {
  const size_t count = places_.size();
  const size_t first = count == 0 ? 0 : ThreadNumber() * 5 % count;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = first + i < count ? first + i : first + i - count;
    Place& place = places_[index];
    uint64_t version = place.version.load(std::memory_order_relaxed);
    if (version % 4 != 0 ||
        !place.version.compare_exchange_strong(version, version + 1, std::memory_order_acq_rel,
                                               std::memory_order_relaxed)) {
      continue;
    }
    // A reader of either sees at least the version above, see ForEach().
    place.begin.store(begin, std::memory_order_release);
    place.end.store(end, std::memory_order_release);
    pins_.Publish(place.version, version + 2);
    return index;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t number = next_listed_++;
  listed_[number] = {begin, end};
  return number | kListed;
}

void WriteTable::Remove(uint64_t place) noexcept {
  if ((place & kListed) != 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    listed_.erase(place & ~kListed);
    return;
  }
  std::atomic<uint64_t>& version = places_[place].version;
  version.store(version.load(std::memory_order_relaxed) + 2, std::memory_order_release);
}

void WriteTable::ForEach(const std::function<void(uint64_t begin, uint64_t end)>& use) const {
  for (const Place& place : places_) {
    const uint64_t version = place.version.load(std::memory_order_seq_cst);
    if (version % 4 != 2) continue;
    const uint64_t begin = place.begin.load(std::memory_order_acquire);
    const uint64_t end = place.end.load(std::memory_order_acquire);
    // If the place has been reused, the range that was here has ended.
    if (place.version.load(std::memory_order_acquire) == version) use(begin, end);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, range] : listed_) use(range.first, range.second);
}

}  // namespace cbt
