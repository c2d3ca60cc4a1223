// A chain's history as rows of cells: time down, offset across.
#ifndef CBT_PROGRAMS_CBT_HISTORY_HISTORY_H_
#define CBT_PROGRAMS_CBT_HISTORY_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_chain.h"
#include "cbt/extent.h"
#include "programs/cbt/support/terminal.h"

namespace cbt::cli {

// The columns of a picture: cells of equal size over the largest capacity of the chain.
struct HistoryScale {
  // At most `columns` (> 0) cells, each a power of two of whole blocks, so that columns start at
  // readable offsets.
  HistoryScale(uint64_t capacity, uint64_t granularity, size_t columns);

  // The bytes of a cell that a volume of `volume` bytes has: fewer at its end, 0 past it.
  uint64_t CellSize(size_t cell, uint64_t volume) const noexcept;

  uint64_t capacity;    // bytes
  uint64_t cell_bytes;  // a multiple of the granularity
  size_t columns;
};

// What changed between two snapshots of a chain.
struct HistoryRow {
  uint64_t bytes = 0;
  std::vector<uint64_t> cells;  // bytes
};

// The chain's snapshots, and what every picture shows of them.
struct History {
  explicit History(const ChangeChain& opened);

  uint64_t LargestCapacity() const noexcept;

  const ChangeChain& chain;
  std::vector<ChainSnapshot> snapshots;
};

// Reads the delta between the snapshots with these indexes. `also` (may be empty) is called for
// each of its extents, in order.
// Errors: those of ChangeChain::Delta() and of its cursor. A row is never returned in part.
absl::StatusOr<HistoryRow> ReadHistoryRow(const History& history, size_t base, size_t target,
                                          const HistoryScale& scale,
                                          const std::function<void(Extent)>& also);

// A picture with a limited number of rows: every row after the first shows the changes since the
// snapshot of the row above. With more snapshots than rows, a row is the delta across several, as
// exact as the chain's.
struct HistoryPicture {
  HistoryScale scale;
  std::vector<size_t> shown;     // indexes of snapshots, ascending, first the oldest
  std::vector<HistoryRow> rows;  // rows[i]: from shown[i] to shown[i + 1]
};

// `rows`: the maximum number of deltas, > 0.
absl::StatusOr<HistoryPicture> ReadHistoryPicture(const History& history, size_t rows,
                                                  size_t columns);

// The most columns of cells that fit into a line of HistoryText() of `line` characters; at least 8.
size_t HistoryTextColumns(const History& history, size_t line);

struct HistoryLook {
  bool colour = false;  // escape sequences for 256 colours; the characters are the same without
  Glyphs glyphs = Glyphs::kAscii;
};

// Text for a terminal or a file.
std::string HistoryText(const History& history, const HistoryPicture& picture,
                        const HistoryLook& how);

// An SVG document.
std::string HistorySvg(const History& history, const HistoryPicture& picture);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_HISTORY_HISTORY_H_
