// Merges extents into maximal ones, a window of the volume at a time.
#ifndef CBT_CORE_UNITER_H_
#define CBT_CORE_UNITER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cbt/batch.h"

namespace cbt {

// Merges extents, given as ascending starts and ascending ends, with earlier ones. The results wait
// here until a batch has room for them. The last result of a window is held back while later
// extents may still be merged with it.
//
//   fill starts()[k] and ends()[k] for k < count, then Unite(count, horizon)
//   while (!waiting_empty) MoveTo(batch)
//
// or, where a batch has room for all results, Join().
class Uniter {
 public:
  // `gap`: neighbours with at most this many bytes between them are merged.
  explicit Uniter(uint64_t gap) noexcept : gap_(gap) {}

  // Drops everything; nothing below `floor` (bytes) is returned from now on.
  void Reset(uint64_t floor) noexcept;

  // Nothing below this is returned.
  uint64_t floor() const noexcept { return floor_; }

  // Makes room for `count` extents; the contents of starts() and ends() are lost.
  void Reserve(size_t count);
  uint64_t* starts() noexcept { return starts_.data() + 1; }
  uint64_t* ends() noexcept { return ends_.data() + 1; }

  // Merges the first `count` of starts() and ends(), none of which begins below the previous
  // horizon. `horizon`: no later extent begins below this. Requires: !waiting().
  void Unite(size_t count, uint64_t horizon) noexcept;

  // Rounds `count` extents (bytes) outward to multiples of `alignment`, a power of two, cuts them
  // at `limit`, merges them as Unite() does and appends the results to `batch`. Requires:
  // !waiting(), batch.room() >= count.
  void Join(const uint64_t* offsets, const uint64_t* lengths, size_t count, uint64_t alignment,
            uint64_t limit, uint64_t horizon, ExtentBatch& batch) noexcept;

  // As Release() after Join(), into `batch` if it has room.
  void ReleaseTo(ExtentBatch& batch) noexcept;

  // No more extents follow: releases the result that was held back. Requires: !waiting().
  void Finish();

  // Releases the result that the last Unite() held back; what would be merged with it later follows
  // as an adjacent extent. Only if results are whole blocks, so that none is reported twice.
  void Release() noexcept;

  // True while results wait for room in a batch.
  bool waiting() const noexcept { return next_ < count_; }
  // Appends waiting results to `batch`, as many as fit.
  void MoveTo(ExtentBatch& batch) noexcept;

  // The start of the first result that has not been returned, but not below the floor; `otherwise`
  // if no result is left.
  uint64_t Pending(uint64_t otherwise) const noexcept;

 private:
  void Append(const Extent& extent, ExtentBatch& batch) const noexcept;

  const uint64_t gap_;
  uint64_t floor_ = 0;
  uint64_t released_ = 0;  // end of what Release() released
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
