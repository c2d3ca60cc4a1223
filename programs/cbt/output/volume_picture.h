// A volume as one line of text.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_VOLUME_PICTURE_H_
#define CBT_PROGRAMS_CBT_OUTPUT_VOLUME_PICTURE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cbt/extent.h"
#include "programs/cbt/support/terminal.h"

namespace cbt::cli {

// Sums extents in up to 64 cells of equal size, in constant memory, and shades each cell by the
// share of its bytes that was reported.
class VolumePicture {
 public:
  // Cells below `starting_offset` (bytes), which was not requested, are blank.
  VolumePicture(uint64_t capacity, uint64_t starting_offset) noexcept;

  // Adds an extent, ignoring anything past the capacity. Extents must not overlap.
  void Add(Extent extent) noexcept;

  // The bytes added, without anything past the capacity.
  uint64_t bytes() const noexcept { return bytes_; }

  // The cells in order, see kShades; blank below the starting offset.
  std::string Draw(Glyphs glyphs) const;

 private:
  static constexpr size_t kCells = 64;

  const uint64_t capacity_;
  const uint64_t starting_offset_;
  const uint64_t cell_bytes_;
  uint64_t bytes_ = 0;
  std::array<uint64_t, kCells> reported_{};
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_VOLUME_PICTURE_H_
