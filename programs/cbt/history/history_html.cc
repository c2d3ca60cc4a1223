#include "programs/cbt/history/history_html.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/json_builder.h"
#include "base/text.h"
#include "programs/cbt/output/progress.h"
#include "programs/cbt/output/shades.h"

namespace cbt::cli {
namespace {

// page.html.
constexpr unsigned char kTemplate[] = {
#include "history_page.inc"
};
constexpr std::string_view kDataMark = "@DATA@";

// Columns of a page; fewer if there are very many rows, to bound the memory of all cells.
constexpr size_t kMaxColumns = 256;
constexpr size_t kLeastColumns = 32;
constexpr size_t kMaxCells = size_t{1} << 22;

// However long the names are, at least this fraction remains for the rest.
constexpr size_t kLeastPart = 8;

// How rows are encoded, finest first: every `merge` cells as one, exact or rounded up.
struct RowForm {
  size_t merge;
  bool exact;
};
constexpr std::array<RowForm, 6> kRowForms = {
    {{1, true}, {2, true}, {4, true}, {4, false}, {8, false}, {16, false}}};

// Numbers with seven bits per byte, low bits first; the top bit marks that more follow.
void PutNumber(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>((value & 0x7f) | 0x80));
  bytes.push_back(static_cast<char>(value));
}

// Whole blocks as 2 * blocks; otherwise 2 * blocks + 1 and the remaining bytes.
void PutBytes(std::string& out, uint64_t bytes, uint64_t granularity) {
  const uint64_t rest = bytes % granularity;
  PutNumber(out, bytes / granularity * 2 + (rest == 0 ? 0 : 1));
  if (rest != 0) PutNumber(out, rest);
}

// Three significant bits, rounded up: 0 to 7 as they are, then four codes per octave.
uint64_t RoundedUp(uint64_t blocks) noexcept {
  if (blocks < 8) return blocks;
  auto shift = static_cast<unsigned>(std::bit_width(blocks)) - 3;
  uint64_t top = ((blocks - 1) >> shift) + 1;
  if (top == 8) {
    top = 4;
    ++shift;
  }
  return 8 + (shift - 1) * 4 + (top - 4);
}

// For each row, runs of equal cells: a value with a bit that marks a following length.
std::string EncodeRows(const HistoryPage& page, uint64_t granularity, const RowForm& form) {
  std::string out;
  const size_t columns = BlockCount(page.scale.columns, form.merge);
  std::vector<uint64_t> cells(columns);
  for (const HistoryRow& row : page.rows) {
    std::ranges::fill(cells, 0);
    for (size_t i = 0; i < row.cells.size(); ++i) cells[i / form.merge] += row.cells[i];
    for (size_t begin = 0; begin < columns;) {
      size_t end = begin + 1;
      while (end < columns && cells[end] == cells[begin]) ++end;
      const uint64_t run = end - begin > 1 ? 1 : 0;
      if (form.exact) {
        const uint64_t rest = cells[begin] % granularity;
        PutNumber(out, cells[begin] / granularity * 4 + (rest == 0 ? 0 : 2) + run);
        if (rest != 0) PutNumber(out, rest);
      } else {
        PutNumber(out, RoundedUp(BlockCount(cells[begin], granularity)) * 2 + run);
      }
      if (run != 0) PutNumber(out, end - begin);
      begin = end;
    }
  }
  return out;
}

// For each epoch the number of its entries, then the entries by ascending age: the difference to
// the previous age, a bit that marks a span, the span, the bytes.
std::string EncodeSizes(const DeltaSizes& sizes, uint64_t granularity) {
  std::string out;
  for (size_t epoch = 1; epoch <= sizes.epochs(); ++epoch) {
    const AgedBytes* const begin = sizes.begin(epoch);
    const AgedBytes* const end = sizes.end(epoch);
    PutNumber(out, static_cast<uint64_t>(end - begin));
    uint64_t before = epoch;
    for (const AgedBytes* entry = end; entry != begin;) {
      --entry;
      const uint64_t span = entry->newest - entry->oldest;
      PutNumber(out, (before - entry->newest) * 2 + (span == 0 ? 0 : 1));
      if (span != 0) PutNumber(out, span);
      PutBytes(out, entry->bytes, granularity);
      before = entry->newest;
    }
  }
  return out;
}

// 0 if unknown; otherwise 1 + the seconds since the last known time, even for forwards and odd for
// backwards.
std::string EncodeTimes(const std::vector<ChainSnapshot>& snapshots) {
  constexpr int64_t kSecond = 1'000'000'000;
  std::string out;
  int64_t last = 0;
  for (const ChainSnapshot& snapshot : snapshots) {
    const std::optional<int64_t>& time = snapshot.time;
    if (!time.has_value()) {
      PutNumber(out, 0);
      continue;
    }
    const int64_t now = *time / kSecond - (*time % kSecond < 0 ? 1 : 0);
    PutNumber(out, 1 + (now >= last ? static_cast<uint64_t>(now - last) * 2
                                    : static_cast<uint64_t>(last - now) * 2 - 1));
    last = now;
  }
  return out;
}

// 0 if equal to the previous snapshot's.
std::string EncodeCapacities(const std::vector<ChainSnapshot>& snapshots, uint64_t granularity) {
  std::string out;
  std::optional<uint64_t> last;
  for (const ChainSnapshot& snapshot : snapshots) {
    const bool same = last == snapshot.capacity;
    PutNumber(out, same ? 0 : 1);
    if (!same) PutBytes(out, snapshot.capacity, granularity);
    last = snapshot.capacity;
  }
  return out;
}

std::string Base64(const std::string& bytes) { return "\"" + absl::Base64Escape(bytes) + "\""; }

}  // namespace

absl::StatusOr<HistoryPage> ReadHistoryPage(const History& history) {
  const size_t deltas = history.snapshots.size() - 1;
  const size_t columns =
      std::clamp(kMaxCells / std::max<size_t>(1, deltas), kLeastColumns, kMaxColumns);
  HistoryPage page{
      HistoryScale(history.LargestCapacity(), history.chain.granularity(), columns), {}, {}};
  page.rows.reserve(deltas);
  Progress progress("reading", deltas);
  for (size_t target = 1; target <= deltas; ++target) {
    absl::StatusOr<HistoryRow> row =
        ReadHistoryRow(history, target - 1, target, page.scale,
                       [&page](Extent extent) { page.sizes.Add(extent); });
    if (!row.ok()) return row.status();
    page.rows.push_back(*std::move(row));
    page.sizes.EndEpoch();
    progress.Update(target);
  }
  return page;
}

std::string HistoryHtml(const History& history, HistoryPage& page, size_t max_bytes) {
  const uint64_t granularity = history.chain.granularity();
  const std::string_view document(reinterpret_cast<const char*>(kTemplate), sizeof(kTemplate));
  const size_t mark = document.find(kDataMark);

  JsonBuilder json;
  json.BeginObject().Field("volume", history.chain.volume());
  json.Field("granularity", absl::StrCat(granularity)).Key("shades").BeginArray();
  for (const Shade& shade : kShades) {
    json.BeginObject().Key("most").Raw(absl::StrCat(shade.most)).Field("text", shade.text);
    json.Field("light", shade.fill).Field("dark", shade.dark).EndObject();
  }
  json.EndArray().Key("ids").BeginArray();
  for (const ChainSnapshot& snapshot : history.snapshots) json.Value(snapshot.id);
  json.EndArray().Key("times").Raw(Base64(EncodeTimes(history.snapshots)));
  json.Key("capacities").Raw(Base64(EncodeCapacities(history.snapshots, granularity)));

  // Names may contain what would end the element with the data.
  std::string data = absl::StrReplaceAll(json.Take(), {{"<", "\\u003c"}});

  constexpr size_t kRest = 200;  // what surrounds rows and sizes
  const size_t used = document.size() + data.size() + kRest;
  const size_t left = std::max(used < max_bytes ? max_bytes - used : 0, max_bytes / kLeastPart);
  const size_t room = left / 4 * 3;  // three bytes take four characters
  // Rows and sizes get half of it each, plus what the other leaves.
  size_t form = 0;
  std::string rows = EncodeRows(page, granularity, kRowForms[form]);
  while (rows.size() > room / 2 && form + 1 < kRowForms.size()) {
    rows = EncodeRows(page, granularity, kRowForms[++form]);
  }
  std::string sizes = EncodeSizes(page.sizes, granularity);
  while (rows.size() + sizes.size() > room && page.sizes.Coarsen()) {
    sizes = EncodeSizes(page.sizes, granularity);
  }
  while (form > 0) {
    std::string finer = EncodeRows(page, granularity, kRowForms[form - 1]);
    if (finer.size() + sizes.size() > room) break;
    rows = std::move(finer);
    --form;
  }
  const size_t merge = kRowForms[form].merge;
  JsonBuilder whole(std::move(data));
  whole.Field("cell", absl::StrCat(page.scale.cell_bytes * merge));
  whole.Field("columns", BlockCount(page.scale.columns, merge));
  whole.Field("exact", kRowForms[form].exact).Key("rows").Raw(Base64(rows));
  whole.Key("sizes").Raw(Base64(sizes)).EndObject();
  return absl::StrCat(AbslView(document.substr(0, mark)), whole.Take(),
                      AbslView(document.substr(mark + kDataMark.size())));
}

}  // namespace cbt::cli
