#include "programs/cbt/output/heat_map.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "programs/cbt/output/document.h"
#include "programs/cbt/output/shades.h"
#include "programs/cbt/support/numbers.h"

namespace cbt::cli {
namespace {

uint64_t CellBytes(uint64_t capacity, uint64_t granularity, size_t cells) noexcept {
  // A power of two of whole blocks, so that no block lies in two cells and rows begin at readable
  // numbers.
  const uint64_t blocks = BlockCount(BlockCount(capacity, granularity), cells);
  return std::bit_ceil(std::max<uint64_t>(1, blocks)) * granularity;
}

std::string Percent(double part) {
  const double percent = 100 * part;
  return part > 0 && percent < 0.01 ? "less than 0.01 %" : absl::StrFormat("%.2f %%", percent);
}

// The offset of a row in the largest unit that divides all of them: neighbouring rows of a large
// volume would otherwise be rounded to one number.
std::string RowLabel(uint64_t offset, uint64_t row_bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  while (unit + 1 < kUnits.size() && row_bytes % 1024 == 0) {
    row_bytes /= 1024;
    offset /= 1024;
    ++unit;
  }
  return absl::StrCat(offset, " ", kUnits[unit]);
}

}  // namespace

HeatMap::HeatMap(uint64_t capacity, uint64_t granularity, size_t rows)
    : capacity_(capacity),
      cell_bytes_(CellBytes(capacity, granularity, kColumns * rows)),
      reported_(static_cast<size_t>(BlockCount(capacity, cell_bytes_))) {}

uint64_t HeatMap::CellSize(size_t cell) const noexcept {
  return std::min(cell_bytes_, capacity_ - cell * cell_bytes_);
}

void HeatMap::Add(Extent extent) noexcept {
  const uint64_t end = std::min(extent.end(), capacity_);
  uint64_t begin = extent.offset;
  for (size_t cell = begin / cell_bytes_; begin < end; ++cell) {
    const uint64_t cut = cell * cell_bytes_ + std::min(CellSize(cell), end - cell * cell_bytes_);
    reported_[cell] += cut - begin;
    begin = cut;
  }
}

double HeatMap::Part(size_t cell) const noexcept {
  return static_cast<double>(reported_[cell]) / static_cast<double>(CellSize(cell));
}

std::string HeatMap::Text(Glyphs glyphs) const {
  const uint64_t row = cell_bytes_ * kColumns;
  size_t width = 0;
  for (size_t first = 0; first < cells(); first += kColumns) {
    width = std::max(width, RowLabel(first * cell_bytes_, row).size());
  }
  std::string text;
  for (size_t first = 0; first < cells(); first += kColumns) {
    const std::string offset = RowLabel(first * cell_bytes_, row);
    text += std::string(width - offset.size(), ' ') + offset + " [";
    for (size_t cell = first; cell < std::min(cells(), first + kColumns); ++cell) {
      text += GlyphOf(ShadeOf(reported_[cell], CellSize(cell)), glyphs);
    }
    text += "]\n";
  }
  return text;
}

std::string HeatMap::Svg(std::string_view title, std::string_view subtitle) const {
  constexpr int kCell = 13;
  constexpr int kLeft = 90;
  constexpr int kTop = 64;
  const int rows = static_cast<int>(BlockCount(cells(), kColumns));
  const int width = kLeft + kCell * static_cast<int>(kColumns) + 20;
  const int height = kTop + kCell * std::max(rows, 1) + 56;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#333\">\n"
      "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
      "<text x=\"%d\" y=\"26\" font-size=\"16\">%s</text>\n"
      "<text x=\"%d\" y=\"46\">%s</text>\n",
      width, height, width, height, width, height, kLeft, XmlText(title), kLeft, XmlText(subtitle));
  for (size_t cell = 0; cell < cells(); ++cell) {
    const int x = kLeft + kCell * static_cast<int>(cell % kColumns);
    const int y = kTop + kCell * static_cast<int>(cell / kColumns);
    if (cell % kColumns == 0) {
      absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                            kLeft - 8, y + kCell - 3,
                            RowLabel(cell * cell_bytes_, cell_bytes_ * kColumns));
    }
    const std::string place = absl::StrFormat("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"",
                                              x, y, kCell - 1, kCell - 1);
    absl::StrAppend(&svg, place, " fill=\"",
                    kShades[ShadeOf(reported_[cell], CellSize(cell))].fill);
    if (reported_[cell] == 0) {
      absl::StrAppend(&svg, "\"/>\n");
    } else {
      absl::StrAppend(&svg, "\"><title>", HumanSize(cell * cell_bytes_), ": ", Percent(Part(cell)),
                      "</title></rect>\n");
    }
  }
  const int legend = height - 24;
  absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\">One cell is %s; of a cell at most:</text>\n",
                        kLeft, legend, HumanSize(cell_bytes_));
  int x = kLeft + 240;
  for (const Shade& shade : kShades) {
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" "
                          "stroke=\"#bbb\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                          x, legend - kCell + 3, kCell - 1, kCell - 1, shade.fill, x + kCell + 4,
                          legend, shade.text);
    x += 84;
  }
  return svg + "</svg>\n";
}

}  // namespace cbt::cli
