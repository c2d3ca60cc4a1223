// What a volume must hold and report, kept the slow way: every byte, and a set of written blocks
// for each snapshot. Shares no code with the volume.
#ifndef CBT_TESTS_VOLUME_VOLUME_MODEL_H_
#define CBT_TESTS_VOLUME_VOLUME_MODEL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "programs/volume/tracked_volume.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/status.h"

namespace cbt::test {

class VolumeModel {
 public:
  struct Snapshot {
    std::string id;
    std::vector<uint8_t> bytes;
    std::set<uint64_t> written;  // blocks, since the snapshot before it
  };

  VolumeModel(size_t capacity, size_t granularity) : granularity_(granularity), bytes_(capacity) {}

  const std::vector<uint8_t>& bytes() const { return bytes_; }
  const std::vector<Snapshot>& snapshots() const { return snapshots_; }
  const std::set<uint64_t>& written() const { return written_; }

  void Fill(size_t offset, size_t length, uint8_t value) {
    if (length == 0) return;
    std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), length, value);
    for (size_t b = offset / granularity_; b <= (offset + length - 1) / granularity_; ++b) {
      written_.insert(b);
    }
  }
  // Whatever was written since the snapshot is written once more.
  void Revert(size_t at) {
    for (size_t i = at + 1; i < snapshots_.size(); ++i) {
      written_.insert(snapshots_[i].written.begin(), snapshots_[i].written.end());
    }
    const size_t capacity = bytes_.size();
    bytes_ = snapshots_[at].bytes;
    bytes_.resize(capacity);
  }
  void Resize(size_t capacity) { bytes_.resize(capacity); }
  void Take(const std::string& id) {
    snapshots_.push_back({id, bytes_, written_});
    written_.clear();
  }
  void Delete(size_t at) {
    std::set<uint64_t>& next = at + 1 == snapshots_.size() ? written_ : snapshots_[at + 1].written;
    next.insert(snapshots_[at].written.begin(), snapshots_[at].written.end());
    snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  // The blocks written between two snapshots, as maximal ranges cut at the target's size.
  reference::Ranges Delta(size_t base, size_t target) const {
    std::set<uint64_t> written;
    for (size_t i = base + 1; i <= target; ++i) {
      written.insert(snapshots_[i].written.begin(), snapshots_[i].written.end());
    }
    reference::Ranges ranges;
    const uint64_t size = snapshots_[target].bytes.size();
    for (const uint64_t block : written) {
      const uint64_t begin = block * granularity_;
      const uint64_t length = std::min<uint64_t>(granularity_, size - begin);
      if (!ranges.empty() && ranges.back().first + ranges.back().second == begin) {
        ranges.back().second += length;
      } else {
        ranges.emplace_back(begin, length);
      }
    }
    return ranges;
  }

  // The blocks in which the bytes of two snapshots differ; the shorter one is followed by zeros.
  static std::set<uint64_t> Differing(const std::vector<uint8_t>& base,
                                      const std::vector<uint8_t>& target, size_t granularity) {
    std::set<uint64_t> blocks;
    for (size_t begin = 0; begin < target.size(); begin += granularity) {
      const size_t end = std::min(begin + granularity, target.size());
      for (size_t i = begin; i < end; ++i) {
        if (target[i] == (i < base.size() ? base[i] : 0)) continue;
        blocks.insert(begin / granularity);
        break;
      }
    }
    return blocks;
  }

 private:
  const size_t granularity_;
  std::vector<uint8_t> bytes_;
  std::set<uint64_t> written_;
  std::vector<Snapshot> snapshots_;
};

// Passes if every one of `blocks` lies in `ranges`.
inline testing::AssertionResult Covers(const reference::Ranges& ranges,
                                       const std::set<uint64_t>& blocks, uint64_t granularity) {
  for (const uint64_t block : blocks) {
    const uint64_t at = block * granularity;
    const bool found = std::any_of(ranges.begin(), ranges.end(), [at](const auto& range) {
      return range.first <= at && at < range.first + range.second;
    });
    if (!found) return testing::AssertionFailure() << "block " << block << " is missing";
  }
  return testing::AssertionSuccess();
}

}  // namespace cbt::test

#endif  // CBT_TESTS_VOLUME_VOLUME_MODEL_H_
