#include "source/overlay/overlay_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "source/qcow2/qcow2_format.h"

namespace cbt {
namespace {

constexpr uint64_t kSectorOfSize = 512;
constexpr unsigned kLeastClusterBits = 9;
constexpr unsigned kMostClusterBits = 21;
// qemu's limit.
constexpr uint64_t kMaxCountTableBytes = 8 * kMiB;

// Splits ranges of clusters into data and zeros by what the input says of its holes.
class HoleFinder {
 public:
  HoleFinder(const CopyInput& input, OverlayPlan& plan) noexcept : input_(input), plan_(plan) {}

  absl::Status Add(uint64_t begin, uint64_t end) {
    const unsigned bits = plan_.shape.cluster_bits;
    while (begin < end) {
      const uint64_t offset = begin << bits;
      if (!known_ || offset < from_ || offset >= found_.end()) {
        const absl::StatusOr<Extent> found = input_.FindData(offset);
        if (!found.ok()) return found.status();
        from_ = offset;
        found_ = *found;
        known_ = true;
        // Nothing follows: no cluster begins there.
        if (found_.length == 0) found_ = {AlignUp(input_.size(), plan_.shape.cluster()), 0};
      }
      const uint64_t data = std::clamp(found_.offset >> bits, begin, end);
      if (data > begin) plan_.Add(begin, data - begin, true);
      if (data == end) return absl::OkStatus();
      const uint64_t data_end =
          std::clamp(BlockCount(found_.end(), plan_.shape.cluster()), data, end);
      if (data_end > data) plan_.Add(data, data_end - data, false);
      // What is found next begins past the data.
      known_ = false;
      begin = data_end;
    }
    return absl::OkStatus();
  }

 private:
  const CopyInput& input_;
  OverlayPlan& plan_;
  // The last answer and where it was asked for.
  bool known_ = false;
  uint64_t from_ = 0;
  Extent found_;
};

}  // namespace

absl::Status CheckOverlayShape(const OverlayShape& shape) {
  if (shape.cluster_bits < kLeastClusterBits || shape.cluster_bits > kMostClusterBits) {
    return absl::InvalidArgumentError(
        "the clusters of qcow2 have a power of two of bytes, 512 to 2097152");
  }
  if (shape.size > kMaxCapacity || shape.size % kSectorOfSize != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a volume of ", shape.size,
                                                   " bytes: qcow2 counts in sectors of ",
                                                   kSectorOfSize, " bytes; fill up the last one"));
  }
  if (shape.first_level_entries() > kMaxL1Bytes / 8) {
    return absl::InvalidArgumentError(absl::StrCat("a volume of ", shape.size,
                                                   " bytes needs larger clusters than ",
                                                   shape.cluster(), " bytes"));
  }
  return absl::OkStatus();
}

void OverlayPlan::Add(uint64_t first, uint64_t count, bool zero) {
  (zero ? zero_clusters : data_clusters) += count;
  const uint64_t entries = shape.table_entries();
  const uint64_t last_table = (first + count - 1) / entries;
  uint64_t first_table = first / entries;
  if (!runs.empty() && (runs.back().end() - 1) / entries == first_table) ++first_table;
  tables += last_table + 1 - first_table;
  if (!runs.empty() && runs.back().end() == first && runs.back().zero == zero) {
    runs.back().count += count;
  } else {
    runs.push_back({first, count, zero});
  }
}

absl::StatusOr<OverlayPlan> PlanOverlay(const OverlayShape& shape, ExtentCursor& cursor,
                                        const CopyInput& input) {
  if (absl::Status valid = CheckOverlayShape(shape); !valid.ok()) return valid;
  if (cursor.capacity() != shape.size || input.size() != shape.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data has ", input.size(), " bytes, but the changes are of a volume of ",
                     cursor.capacity(), ": they belong to another snapshot"));
  }
  OverlayPlan plan{.shape = shape};
  HoleFinder holes(input, plan);
  uint64_t planned = 0;  // clusters below it
  absl::Status status = ForEachBatch(cursor, [&](const ExtentBatch& batch) -> absl::Status {
    for (size_t i = 0; i < batch.size(); ++i) {
      // The last block of a cursor over blocks may extend past the capacity.
      const uint64_t end = std::min(batch[i].end(), shape.size);
      if (batch[i].offset >= end) continue;
      const uint64_t from = std::max(planned, batch[i].offset >> shape.cluster_bits);
      const uint64_t to = BlockCount(end, shape.cluster());
      if (from >= to) continue;
      if (absl::Status added = holes.Add(from, to); !added.ok()) return added;
      planned = to;
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return plan;
}

absl::StatusOr<OverlayTables> PlaceOverlayTables(const OverlayPlan& plan, uint64_t data_end) {
  const uint64_t cluster = plan.shape.cluster();
  OverlayTables tables;
  tables.second_level = data_end;
  tables.first_level = tables.second_level + plan.tables * cluster;
  tables.count_blocks = tables.first_level + AlignUp(plan.shape.first_level_entries() * 8, cluster);
  // Counts of 2 bytes, of their own blocks as well.
  const uint64_t counted = tables.count_blocks / cluster;
  uint64_t blocks = 0;
  for (;;) {
    tables.count_table_clusters = std::max<uint64_t>(1, BlockCount(blocks * 8, cluster));
    const uint64_t needed = BlockCount(counted + blocks + tables.count_table_clusters, cluster / 2);
    if (needed <= blocks) break;
    blocks = needed;
  }
  if (blocks * 8 > kMaxCountTableBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an increment of ", data_end, " bytes needs larger clusters than ", cluster, " bytes"));
  }
  tables.count_table = tables.count_blocks + blocks * cluster;
  tables.end = tables.count_table + tables.count_table_clusters * cluster;
  return tables;
}

}  // namespace cbt
