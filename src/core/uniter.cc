#include "core/uniter.h"

#include <algorithm>

#include "simd/kernels.h"

namespace cbt {

void Uniter::Reset(uint64_t floor) noexcept {
  floor_ = floor;
  released_ = 0;
  held_ = {};
  next_ = count_ = 0;
}

void Uniter::Reserve(size_t count) {
  if (starts_.size() > count) return;
  // One more element in front, for the result that was held back. `starts_` is tested above, so it
  // is resized last: if memory runs out, none of the others may be shorter than it.
  offsets_.resize(count + 1 + simd::kSortedSlack);
  lengths_.resize(count + 1 + simd::kSortedSlack);
  ends_.resize(count + 1);
  starts_.resize(count + 1);
}

void Uniter::Unite(size_t count, uint64_t horizon) noexcept {
  next_ = count_ = 0;
  floor_ = std::max(floor_, released_);
  const size_t held = held_.length != 0 ? 1 : 0;
  if (held + count == 0) return;
  if (held != 0) {
    // It begins before the others and, since they are cut at the horizon, ends before they do.
    starts_[0] = held_.offset;
    ends_[0] = held_.end();
  }
  count_ = simd::SortedExtents().unite(starts_.data() + 1 - held, ends_.data() + 1 - held,
                                       held + count, gap_, offsets_.data(), lengths_.data());
  const Extent last = {offsets_[count_ - 1], lengths_[count_ - 1]};
  const bool may_grow = horizon <= last.end() || horizon - last.end() <= gap_;
  held_ = may_grow ? last : Extent();
  count_ -= may_grow ? 1 : 0;
}

// Cut at the floor.
void Uniter::Append(const Extent& extent, ExtentBatch& batch) const noexcept {
  const uint64_t begin = std::max(extent.offset, floor_);
  if (begin < extent.end()) batch.push_back({begin, extent.end() - begin});
}

void Uniter::Join(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                  uint64_t alignment, uint64_t limit, uint64_t horizon,
                  ExtentBatch& batch) noexcept {
  static_assert(ExtentBatch::kSlack > simd::kSortedSlack);
  floor_ = std::max(floor_, released_);
  uint64_t* const joined_offsets = batch.mutable_offsets() + batch.size();
  uint64_t* const joined_lengths = batch.mutable_lengths() + batch.size();
  simd::OpenExtent open = {held_.offset, held_.end()};
  size_t runs = simd::SortedExtents().join(offsets, lengths, count, {alignment, limit, gap_}, open,
                                           joined_offsets, joined_lengths);
  held_ = {open.start, open.end - open.start};
  // Only the first results after Reset() or ReleaseTo() can begin below the floor.
  size_t below = 0;
  while (below < runs && joined_offsets[below] + joined_lengths[below] <= floor_) ++below;
  if (below != 0) {
    std::copy(joined_offsets + below, joined_offsets + runs, joined_offsets);
    std::copy(joined_lengths + below, joined_lengths + runs, joined_lengths);
    runs -= below;
  }
  if (runs != 0 && joined_offsets[0] < floor_) {
    joined_lengths[0] -= floor_ - joined_offsets[0];
    joined_offsets[0] = floor_;
  }
  batch.set_size(batch.size() + runs);
  if (held_.length == 0 || batch.full()) return;
  const bool may_grow = horizon <= held_.end() || horizon - held_.end() <= gap_;
  if (may_grow) return;
  Append(held_, batch);
  held_ = {};
}

void Uniter::ReleaseTo(ExtentBatch& batch) noexcept {
  if (held_.length == 0 || batch.full()) return;
  Append(held_, batch);
  released_ = held_.end();
  held_ = {};
}

void Uniter::Finish() {
  next_ = count_ = 0;
  if (held_.length == 0) return;
  Reserve(1);
  offsets_[0] = held_.offset;
  lengths_[0] = held_.length;
  count_ = 1;
  held_ = {};
}

void Uniter::Release() noexcept {
  if (held_.length == 0) return;
  // Unite() left it after the results.
  ++count_;
  released_ = held_.end();
  held_ = {};
}

void Uniter::MoveTo(ExtentBatch& batch) noexcept {
  // Only the first results after Reset() or Release() can begin below the floor.
  while (waiting() && offsets_[next_] < floor_) {
    const uint64_t end = offsets_[next_] + lengths_[next_];
    if (end > floor_) {
      offsets_[next_] = floor_;
      lengths_[next_] = end - floor_;
      break;
    }
    ++next_;
  }
  const size_t count = std::min(count_ - next_, batch.room());
  std::copy_n(offsets_.data() + next_, count, batch.mutable_offsets() + batch.size());
  std::copy_n(lengths_.data() + next_, count, batch.mutable_lengths() + batch.size());
  batch.set_size(batch.size() + count);
  next_ += count;
}

uint64_t Uniter::Pending(uint64_t otherwise) const noexcept {
  if (waiting()) return std::max(offsets_[next_], floor_);
  const uint64_t first = held_.length != 0 ? held_.offset : otherwise;
  return std::max({first, floor_, released_});
}

}  // namespace cbt
