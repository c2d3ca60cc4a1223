#include "programs/cbt/output/volume_picture.h"

#include <algorithm>

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

const char* Shade(uint64_t reported, uint64_t size, Glyphs glyphs) noexcept {
  static constexpr std::array<const char*, 4> kUnicode = {"░", "▒", "▓", "█"};
  static constexpr std::array<const char*, 4> kAscii = {"-", "=", "+", "#"};
  const bool ascii = glyphs == Glyphs::kAscii;
  if (reported == 0) return ascii ? "." : "·";
  // Quarters are rounded down, so only a full cell could reach 4.
  const double quarters = 4.0 * static_cast<double>(reported) / static_cast<double>(size);
  return (ascii ? kAscii : kUnicode)[std::min<size_t>(3, static_cast<size_t>(quarters))];
}

std::string VolumePicture::Draw(Glyphs glyphs) const {
  std::string picture;
  for (size_t cell = 0; cell < BlockCount(capacity_, cell_bytes_); ++cell) {
    const uint64_t begin = cell * cell_bytes_;
    const uint64_t size = std::min(cell_bytes_, capacity_ - begin);
    const bool asked_for = reported_[cell] != 0 || begin + size > starting_offset_;
    picture += asked_for ? Shade(reported_[cell], size, glyphs) : " ";
  }
  return picture;
}

}  // namespace cbt::cli
