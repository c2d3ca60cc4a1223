#include "programs/cbt/output/volume_picture.h"

#include <algorithm>

#include "programs/cbt/output/shades.h"

namespace cbt::cli {

VolumePicture::VolumePicture(uint64_t capacity, uint64_t starting_offset) noexcept
    : capacity_(capacity),
      starting_offset_(starting_offset),
      cell_bytes_(std::max<uint64_t>(1, BlockCount(capacity, kCells))) {}

void VolumePicture::Add(Extent extent) noexcept {
  const uint64_t end = std::min(extent.end(), capacity_);
  uint64_t begin = extent.offset;
  if (begin >= end) return;
  bytes_ += end - begin;
  for (size_t cell = begin / cell_bytes_; begin < end; ++cell) {
    const uint64_t cut = std::min(end, (cell + 1) * cell_bytes_);
    reported_[cell] += cut - begin;
    begin = cut;
  }
}

std::string VolumePicture::Draw(Glyphs glyphs) const {
  std::string picture;
  for (size_t cell = 0; cell < BlockCount(capacity_, cell_bytes_); ++cell) {
    const uint64_t begin = cell * cell_bytes_;
    const uint64_t size = std::min(cell_bytes_, capacity_ - begin);
    const bool asked_for = reported_[cell] != 0 || begin + size > starting_offset_;
    picture += asked_for ? GlyphOf(ShadeOf(reported_[cell], size), glyphs) : " ";
  }
  return picture;
}

}  // namespace cbt::cli
