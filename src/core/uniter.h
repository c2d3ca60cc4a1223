// Extents to maximal extents, a piece of the volume at a time.
#ifndef CBT_CORE_UNITER_H_
#define CBT_CORE_UNITER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cbt/batch.h"

namespace cbt {

// Unites extents, given as ascending starts and ascending ends, with what came before; the results
// wait here until a batch has room for them. The last one of a piece is held back while what comes
// next may still be united with it.
//
//   fill starts()[k] and ends()[k] for k < count, then Unite(count, horizon)
//   while (!waiting_empty) HandOn(batch)
class Uniter {
 public:
  // `gap`: the bytes between neighbours that are bridged.
  explicit Uniter(uint64_t gap) noexcept : gap_(gap) {}

  // Forgets everything; nothing below `floor` (bytes) is handed on from now on.
  void Reset(uint64_t floor) noexcept;

  // Nothing below is handed on.
  uint64_t floor() const noexcept { return floor_; }

  // Makes room for `count` extents; what is in starts() and ends() is lost.
  void Reserve(size_t count);
  uint64_t* starts() noexcept { return starts_.data() + 1; }
  uint64_t* ends() noexcept { return ends_.data() + 1; }

  // Unites the first `count` of starts() and ends(), none of which begins below the last horizon.
  // `horizon`: no extent that comes later begins below. Requires: !waiting().
  void Unite(size_t count, uint64_t horizon) noexcept;

  // Nothing comes any more: what was held back waits too now. Requires: !waiting().
  void Finish();

  // What was held back by the last Unite() waits too now; what is united with it later follows as
  // an extent that touches it. Only where results are whole blocks, so that none is told twice.
  void Release() noexcept;

  // True while results wait for room in a batch.
  bool waiting() const noexcept { return next_ < count_; }
  // Appends waiting results to `batch`, as many as it has room for.
  void HandOn(ExtentBatch& batch) noexcept;

  // Where the first result begins that has not been handed on; `otherwise` when there is none. Not
  // below the floor.
  uint64_t Pending(uint64_t otherwise) const noexcept;

 private:
  const uint64_t gap_;
  uint64_t floor_ = 0;
  uint64_t released_ = 0;  // end of what Release() gave
  Extent held_;            // empty: none
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> ends_;
  std::vector<uint64_t> offsets_;
  std::vector<uint64_t> lengths_;
  size_t next_ = 0;
  size_t count_ = 0;
};

}  // namespace cbt

#endif  // CBT_CORE_UNITER_H_
