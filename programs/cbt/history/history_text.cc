#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"
#include "programs/cbt/history/history.h"
#include "programs/cbt/output/shades.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

constexpr size_t kMaxName = 24;

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  }));
}

// At most kMaxName characters, from the end of a long name, where names of snapshots differ.
std::string ShortName(const std::string& id) {
  std::string name = OneLine(id);
  if (Characters(name) <= kMaxName) return name;
  size_t begin = name.size();
  for (size_t kept = 0; kept < kMaxName - 2; ++kept) {
    do --begin;
    while ((static_cast<unsigned char>(name[begin]) & 0xc0) == 0x80);
  }
  return ".." + name.substr(begin);
}

std::string Padded(std::string text, size_t width) {
  const size_t length = Characters(text);
  if (length < width) text.append(width - length, ' ');
  return text;
}

// A run of cells of one class.
void AppendCells(std::string& text, size_t shade, size_t count, const HistoryLook& how) {
  const Shade& look = kShades[shade];
  if (how.colour) {
    absl::StrAppend(&text, "\x1b[48;5;", look.background, ";38;5;", look.foreground, "m");
  }
  for (size_t i = 0; i < count; ++i) text += GlyphOf(shade, how.glyphs);
  if (how.colour) text += "\x1b[0m";
}

std::string Cells(const HistoryRow& row, const HistoryScale& scale, uint64_t capacity,
                  const HistoryLook& how) {
  std::string text;
  size_t begin = 0;
  const auto shade_of = [&](size_t cell) {
    return ShadeOf(row.cells[cell], scale.CellSize(cell, capacity));
  };
  while (begin < scale.columns && scale.CellSize(begin, capacity) != 0) {
    size_t end = begin + 1;
    while (end < scale.columns && scale.CellSize(end, capacity) != 0 &&
           shade_of(end) == shade_of(begin)) {
      ++end;
    }
    AppendCells(text, shade_of(begin), end - begin, how);
    begin = end;
  }
  // Past the end of a volume that was smaller then.
  return text + std::string(scale.columns - begin, ' ');
}

// Offsets above the first of every `step` cells.
std::string Axis(const HistoryScale& scale) {
  constexpr size_t kStep = 16;
  std::string text;
  for (size_t cell = 0; cell < scale.columns; cell += kStep) {
    const std::string offset = cell == 0 ? "0" : "|" + HumanSize(cell * scale.cell_bytes);
    if (cell + offset.size() <= scale.columns) text += Padded(offset, kStep);
  }
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

// The characters of a line before its cells, without the snapshot's name.
constexpr size_t kBeforeCells = 32;

// The longest name of a snapshot, as it is shown.
size_t NameWidth(const std::vector<ChainSnapshot>& snapshots) {
  size_t width = 8;
  for (const ChainSnapshot& snapshot : snapshots) {
    width = std::max(width, Characters(ShortName(snapshot.id)));
  }
  return width;
}

}  // namespace

size_t HistoryTextColumns(const History& history, size_t line) {
  constexpr size_t kLeast = 8;
  const size_t before = kBeforeCells + NameWidth(history.snapshots);
  return line > before + kLeast ? line - before : kLeast;
}

std::string HistoryText(const History& history, const HistoryPicture& picture,
                        const HistoryLook& how) {
  const std::vector<ChainSnapshot>& snapshots = history.snapshots;
  std::string text = absl::StrFormat(
      "%s: %d snapshot%s, %s to %s, %s\n", OneLine(history.chain.volume()), snapshots.size(),
      snapshots.size() == 1 ? "" : "s", OneLine(snapshots.front().id), OneLine(snapshots.back().id),
      HumanSize(snapshots.back().capacity));
  absl::StrAppend(&text, "Each row shows what changed since the snapshot in the row above");
  if (picture.shown.size() < snapshots.size()) {
    absl::StrAppend(&text, ", up to ", BlockCount(snapshots.size() - 1, picture.rows.size()),
                    " snapshots in one row (--rows)");
  }
  absl::StrAppend(&text, ".\nOne cell is ", HumanSize(picture.scale.cell_bytes), ".\n\n");

  size_t width = 8;
  for (const size_t at : picture.shown) {
    width = std::max(width, Characters(ShortName(snapshots[at].id)));
  }
  text += Padded("taken (UTC)", 16) + "  " + Padded("snapshot", width) + "     changed  " +
          Axis(picture.scale) + "\n";
  for (size_t i = 0; i < picture.shown.size(); ++i) {
    const size_t at = picture.shown[i];
    text += Padded(MinuteText(snapshots[at].time), 16) + "  " +
            Padded(ShortName(snapshots[at].id), width);
    if (i == 0) {
      text += "      oldest\n";
      continue;
    }
    const HistoryRow& row = picture.rows[i - 1];
    const std::string bytes = HumanSize(row.bytes);
    text += std::string(12 - std::min<size_t>(12, bytes.size()), ' ') + bytes + "  " +
            Cells(row, picture.scale, snapshots[at].capacity, how) + "\n";
  }
  text += "\nof a cell at most:";
  for (size_t shade = 0; shade < kShades.size(); ++shade) {
    text += shade == 0 ? " " : "  ";
    AppendCells(text, shade, 1, how);
    absl::StrAppend(&text, " ", kShades[shade].text);
  }
  return text + "\n";
}

}  // namespace cbt::cli
