#include "programs/cbt/history/history.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "cbt/batch.h"
#include "cbt/cursor.h"
#include "programs/cbt/output/progress.h"

namespace cbt::cli {

HistoryScale::HistoryScale(uint64_t volume, uint64_t granularity, size_t most)
    : capacity(volume),
      cell_bytes(
          std::bit_ceil(std::max<uint64_t>(1, BlockCount(BlockCount(volume, granularity), most))) *
          granularity),
      columns(static_cast<size_t>(BlockCount(volume, cell_bytes))) {}

uint64_t HistoryScale::CellSize(size_t cell, uint64_t volume) const noexcept {
  const uint64_t begin = cell * cell_bytes;
  return begin >= volume ? 0 : std::min(cell_bytes, volume - begin);
}

History::History(const ChangeChain& opened) : chain(opened), snapshots(opened.snapshots()) {}

uint64_t History::LargestCapacity() const noexcept {
  uint64_t largest = 0;
  for (const ChainSnapshot& snapshot : snapshots) largest = std::max(largest, snapshot.capacity);
  return largest;
}

absl::StatusOr<HistoryRow> ReadHistoryRow(const History& history, size_t base, size_t target,
                                          const HistoryScale& scale,
                                          const std::function<void(Extent)>& also) {
  absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor =
      history.chain.Delta(history.snapshots[base].id, history.snapshots[target].id);
  if (!cursor.ok()) return cursor.status();
  HistoryRow row;
  row.cells.resize(scale.columns);
  const absl::Status status = ForEachBatch(**cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = batch[i];
      row.bytes += extent.length;
      uint64_t begin = extent.offset;
      for (size_t cell = begin / scale.cell_bytes; begin < extent.end(); ++cell) {
        const uint64_t cut = std::min(extent.end(), (cell + 1) * scale.cell_bytes);
        row.cells[cell] += cut - begin;
        begin = cut;
      }
      if (also) also(extent);
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return row;
}

absl::StatusOr<HistoryPicture> ReadHistoryPicture(const History& history, size_t rows,
                                                  size_t columns) {
  HistoryPicture picture{
      HistoryScale(history.LargestCapacity(), history.chain.granularity(), columns), {0}, {}};
  const size_t deltas = history.snapshots.size() - 1;
  const size_t groups = std::min(rows, deltas);
  Progress progress("drawing", groups);
  for (size_t group = 1; group <= groups; ++group) {
    // The product fits: both are far below 2^32.
    const size_t target = group * deltas / groups;
    absl::StatusOr<HistoryRow> row =
        ReadHistoryRow(history, picture.shown.back(), target, picture.scale, {});
    if (!row.ok()) return row.status();
    picture.shown.push_back(target);
    picture.rows.push_back(*std::move(row));
    progress.Update(group);
  }
  return picture;
}

}  // namespace cbt::cli
