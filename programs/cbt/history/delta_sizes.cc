#include "programs/cbt/history/delta_sizes.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace cbt::cli {
namespace {

// Levels of merging ages: 0: none; 1 to 5: ages within a part of an octave (16, 8, 4, 2 or 1
// parts); 6 and 7: within 2 and 4 octaves; 8: all ages above 0.
constexpr unsigned kLastLevel = 8;

// The class of an age (> 0) at this level; ascending with the age.
uint32_t ClassOf(uint32_t age, unsigned level) noexcept {
  if (level == 0) return age;
  if (level == kLastLevel) return 0;
  const auto octave = static_cast<unsigned>(std::bit_width(age)) - 1;
  if (level > 5) return octave >> (level - 5);
  const unsigned kept = 5 - level;  // bits after the first one
  return octave <= kept ? age : ((octave - kept) << kept) + (age >> (octave - kept));
}

bool IsFirstChange(const AgedBytes& entry) noexcept { return entry.newest == 0; }

}  // namespace

void DeltaSizes::Count(uint32_t oldest, uint32_t newest, uint64_t bytes) {
  // A merged range may name the current epoch, but extents of one epoch do not overlap.
  newest = std::min(newest, static_cast<uint32_t>(ends_.size()));
  if (!present_.empty() && present_.back().oldest == oldest && present_.back().newest == newest) {
    present_.back().bytes += bytes;
  } else {
    if (present_.size() >= present_limit_) {
      MergeAges(static_cast<uint32_t>(ends_.size() + 1), present_);
      present_limit_ = std::max(kPresentEntries, present_.size() * 2);
    }
    present_.push_back({oldest, newest, bytes});
  }
}

void DeltaSizes::Add(Extent extent) {
  const auto epoch = static_cast<uint32_t>(ends_.size() + 1);
  const uint64_t begin = extent.offset;
  const uint64_t end = extent.end();
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second.end > begin) --at;
  uint64_t position = begin;  // the extent is counted up to here
  bool reused = false;        // whether `at` had the same offset, and has become the new range
  while (at != ranges_.end() && at->first < end) {
    ++visited_;
    const uint64_t old_begin = at->first;
    const Range old = at->second;
    if (old_begin > position) Count(0, 0, old_begin - position);
    const uint64_t from = std::max(old_begin, begin);
    position = std::min(old.end, end);
    Count(old.oldest, old.newest, position - from);
    if (old_begin < begin) {
      at->second.end = begin;
      ++at;
    } else if (old_begin == begin) {
      at->second = {end, epoch, epoch};
      reused = true;
      ++at;
    } else {
      at = ranges_.erase(at);
    }
    if (old.end > end) {
      ranges_.emplace_hint(at, end, Range{old.end, old.oldest, old.newest});
      break;
    }
  }
  if (position < end) Count(0, 0, end - position);
  if (!reused) ranges_.emplace(begin, Range{end, epoch, epoch});
  if (ranges_.size() > limits_.ranges) MergeRanges();
}

// Merges ranges pairwise, including what is between them, which may have changed as long ago as the
// older one, or never.
void DeltaSizes::MergeRanges() {
  absl::btree_map<uint64_t, Range> merged;
  for (auto at = ranges_.begin(); at != ranges_.end(); ++at) {
    const uint64_t begin = at->first;
    Range range = at->second;
    if (const auto next = std::next(at); next != ranges_.end()) {
      range.oldest = next->first > range.end ? 0 : std::min(range.oldest, next->second.oldest);
      range.newest = std::max(range.newest, next->second.newest);
      range.end = next->second.end;
      at = next;
    }
    merged.emplace_hint(merged.end(), begin, range);
  }
  ranges_ = std::move(merged);
}

void DeltaSizes::MergeAges(uint32_t epoch, std::vector<AgedBytes>& entries) const {
  std::ranges::sort(entries, [](const AgedBytes& a, const AgedBytes& b) {
    return a.newest != b.newest ? a.newest < b.newest : a.oldest < b.oldest;
  });
  size_t kept = 0;
  for (const AgedBytes& entry : entries) {
    if (kept > 0) {
      AgedBytes& last = entries[kept - 1];
      const bool same = last.oldest == entry.oldest && last.newest == entry.newest;
      if (same || (level_ > 0 && !IsFirstChange(last) && !IsFirstChange(entry) &&
                   ClassOf(epoch - last.newest, level_) == ClassOf(epoch - entry.newest, level_))) {
        last.oldest = std::min(last.oldest, entry.oldest);
        last.newest = entry.newest;
        last.bytes += entry.bytes;
        continue;
      }
    }
    entries[kept++] = entry;
  }
  entries.resize(kept);
}

void DeltaSizes::EndEpoch() {
  MergeAges(static_cast<uint32_t>(ends_.size() + 1), present_);
  entries_.insert(entries_.end(), present_.begin(), present_.end());
  ends_.push_back(entries_.size());
  present_.clear();
  // Down to half of the limit, so that it is not reached again at once.
  if (entries_.size() > limits_.entries) {
    while (entries_.size() > limits_.entries / 2 && Coarsen()) {
    }
  }
}

bool DeltaSizes::Coarsen() {
  if (level_ == kLastLevel) return false;
  ++level_;
  std::vector<AgedBytes> all;
  std::vector<AgedBytes> of_epoch;
  size_t begin = 0;
  for (size_t i = 0; i < ends_.size(); ++i) {
    of_epoch.assign(entries_.begin() + static_cast<std::ptrdiff_t>(begin),
                    entries_.begin() + static_cast<std::ptrdiff_t>(ends_[i]));
    begin = ends_[i];
    MergeAges(static_cast<uint32_t>(i + 1), of_epoch);
    all.insert(all.end(), of_epoch.begin(), of_epoch.end());
    ends_[i] = all.size();
  }
  entries_ = std::move(all);
  return true;
}

SizeBounds DeltaSizes::Between(size_t base, size_t target) const noexcept {
  SizeBounds bounds;
  for (size_t epoch = base + 1; epoch <= target; ++epoch) {
    for (const AgedBytes* entry = begin(epoch); entry != end(epoch); ++entry) {
      if (entry->oldest > base) continue;
      bounds.most += entry->bytes;
      if (entry->newest <= base) bounds.least += entry->bytes;
    }
  }
  return bounds;
}

}  // namespace cbt::cli
