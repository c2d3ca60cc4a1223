// A picture of where in a volume changes lie.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_HEAT_MAP_H_
#define CBT_PROGRAMS_CBT_OUTPUT_HEAT_MAP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cbt/cursor.h"
#include "cbt/extent.h"
#include "programs/cbt/support/terminal.h"

namespace cbt::cli {

// The volume in rows of cells of equal size, and how much of each cell was reported.
class HeatMap {
 public:
  static constexpr size_t kColumns = 64;

  // At most `rows` (> 0) rows; fewer if the volume has fewer blocks of `granularity` bytes.
  HeatMap(uint64_t capacity, uint64_t granularity, size_t rows);

  // Adds an extent, ignoring anything past the capacity. Extents must not overlap. O(cells).
  void Add(Extent extent) noexcept;

  uint64_t cell_bytes() const noexcept { return cell_bytes_; }
  size_t cells() const noexcept { return reported_.size(); }
  // The share of the cell's bytes that was reported, 0 .. 1.
  double Part(size_t cell) const noexcept;

  // One line per row, starting with its offset, which is exact. ShadesLegend() explains the shades.
  std::string Text(Glyphs glyphs) const;

  // An SVG document. `title` and `subtitle` may be any text.
  std::string Svg(std::string_view title, std::string_view subtitle) const;

 private:
  uint64_t CellSize(size_t cell) const noexcept;

  const uint64_t capacity_;
  const uint64_t cell_bytes_;
  std::vector<uint64_t> reported_;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_HEAT_MAP_H_
