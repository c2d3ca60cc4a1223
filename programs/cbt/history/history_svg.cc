#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "programs/cbt/history/history.h"
#include "programs/cbt/output/document.h"
#include "programs/cbt/output/shades.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

constexpr int kLeft = 330;
constexpr int kTop = 96;
constexpr int kHeight = 16;
constexpr int kCellsWidth = 768;

}  // namespace

std::string HistorySvg(const History& history, const HistoryPicture& picture) {
  const std::vector<ChainSnapshot>& snapshots = history.snapshots;
  const HistoryScale& scale = picture.scale;
  const double cell =
      static_cast<double>(kCellsWidth) / static_cast<double>(std::max<size_t>(1, scale.columns));
  const int width = kLeft + kCellsWidth + 24;
  const int bottom = kTop + kHeight * static_cast<int>(picture.shown.size());
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#333\">\n"
      "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
      "<text x=\"20\" y=\"30\" font-size=\"17\">%s</text>\n"
      "<text x=\"20\" y=\"50\">%d snapshots, %s to %s, %s; each row shows what changed since the "
      "snapshot in the row above</text>\n"
      "<text x=\"20\" y=\"%d\" fill=\"#666\">taken (UTC)</text>"
      "<text x=\"130\" y=\"%d\" fill=\"#666\">snapshot</text>"
      "<text x=\"%d\" y=\"%d\" fill=\"#666\" text-anchor=\"end\">changed</text>\n",
      width, bottom + 60, width, bottom + 60, width, bottom + 60, XmlText(history.chain.volume()),
      snapshots.size(), XmlText(snapshots.front().id), XmlText(snapshots.back().id),
      HumanSize(snapshots.back().capacity), kTop - 8, kTop - 8, kLeft - 10, kTop - 8);
  for (size_t i = 0; i < scale.columns; i += std::max<size_t>(1, scale.columns / 8)) {
    const double x = kLeft + cell * static_cast<double>(i);
    absl::StrAppendFormat(&svg,
                          "<text x=\"%.1f\" y=\"%d\" fill=\"#666\">%s</text>"
                          "<path d=\"M%.1f %dV%d\" stroke=\"#bbb\"/>\n",
                          x, kTop - 8, i == 0 ? "0" : HumanSize(i * scale.cell_bytes), x, kTop - 5,
                          kTop);
  }
  for (size_t i = 0; i < picture.shown.size(); ++i) {
    const ChainSnapshot& snapshot = snapshots[picture.shown[i]];
    const int y = kTop + kHeight * static_cast<int>(i);
    // Names are clipped by a nested frame: their width depends on the font.
    absl::StrAppendFormat(
        &svg,
        "<text x=\"20\" y=\"%d\">%s</text><svg x=\"130\" y=\"%d\" width=\"128\" height=\"%d\">"
        "<text y=\"12\">%s</text></svg><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
        y + 12, MinuteText(snapshot.time), y, kHeight, XmlText(snapshot.id), kLeft - 10, y + 12,
        i == 0 ? "oldest" : HumanSize(picture.rows[i - 1].bytes));
    if (i == 0) continue;
    const HistoryRow& row = picture.rows[i - 1];
    absl::StrAppendFormat(
        &svg, "<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", kLeft, y,
        kCellsWidth * static_cast<double>(snapshot.capacity) /
            static_cast<double>(std::max<uint64_t>(1, scale.columns * scale.cell_bytes)),
        kHeight - 1, kShades[0].fill);
    const std::string pair =
        absl::StrCat(XmlText(snapshots[picture.shown[i - 1]].id), " to ", XmlText(snapshot.id),
                     snapshot.time.has_value() ? ", " + MinuteText(snapshot.time) : "");
    for (size_t at = 0; at < scale.columns; ++at) {
      if (row.cells[at] == 0) continue;
      const uint64_t size = scale.CellSize(at, snapshot.capacity);
      absl::StrAppendFormat(
          &svg,
          "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s: %s of %s "
          "at %s</title></rect>\n",
          kLeft + cell * static_cast<double>(at), y,
          cell * static_cast<double>(size) / static_cast<double>(scale.cell_bytes), kHeight - 1,
          kShades[ShadeOf(row.cells[at], size)].fill, pair, HumanSize(row.cells[at]),
          HumanSize(size), HumanSize(at * scale.cell_bytes));
    }
  }
  absl::StrAppendFormat(&svg, "<text x=\"20\" y=\"%d\">One cell is %s; of a cell at most:</text>\n",
                        bottom + 30, HumanSize(scale.cell_bytes));
  int x = kLeft;
  for (const Shade& shade : kShades) {
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\" "
                          "stroke=\"#bbb\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                          x, bottom + 19, shade.fill, x + 20, bottom + 30, shade.text);
    x += 88;
  }
  return svg + "</svg>\n";
}

}  // namespace cbt::cli
