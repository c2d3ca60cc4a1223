// What is reported against what changed: many small, awkward volumes through every core source and
// random stacks of transforms, from random offsets, against one bit per byte.
//
// A plain loop and not a property, because the number of cases matters: CBT_TEST_SCALE=40 makes
// more than a million. A case depends on its number alone; CBT_TRUTH_CASE=N repeats one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "tests/support/awkward_volumes.h"
#include "tests/support/cursors.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"

namespace cbt {
namespace truth_test {

using reference::ByteSet;
using reference::Ranges;
using test::AnyBlocks;
using test::AnyGeometry;
using test::AnyImages;
using test::BytesOfBlocks;
using test::Geometry;
using test::Images;
using test::OneOf;
using test::ValueOf;
using Random = std::mt19937_64;
using CursorPtr = std::unique_ptr<ExtentCursor>;
using Bytes = std::vector<uint8_t>;

// The sources and operations of a case.
enum class Form {
  kImages,         // two images, compared
  kAllocation,     // one image, where it is not zero
  kBitmap,         // in any layout
  kTwoBitmaps,     // combined while reading
  kExtents,        // a list
  kMapFile,        // builder, file, cursor
  kPortable,       // bitmap, portable bytes at an odd address, view, cursor
  kMapAlgebra,     // two maps into one, to a file and back
  kMapUnion,       // the lazy union of maps
  kCursorAlgebra,  // set operations on cursors of different kinds
  kWholeChain,     // images, bitmap, map, file, map
  kCount,
};

constexpr const char* kFormNames[] = {"images",    "allocation", "bitmap",     "two_bitmaps",
                                      "extents",   "map_file",   "portable",   "map_algebra",
                                      "map_union", "cursors",    "whole_chain"};
static_assert(std::size(kFormNames) == static_cast<size_t>(Form::kCount));

// Everything that a case has built so far.
struct Source {
  std::vector<std::shared_ptr<const void>> keep;  // the data that the cursor reads
  CursorPtr cursor;
  ByteSet truth;
};

// A copy at an odd address that lives as long as the source.
std::span<const uint8_t> Keep(Source& source, const Bytes& bytes) {
  auto kept = std::make_shared<Bytes>(bytes.size() + 1);
  std::copy(bytes.begin(), bytes.end(), kept->begin() + 1);
  source.keep.push_back(kept);
  return std::span<const uint8_t>(*kept).subspan(1);
}

// ---- sources

Source FromImages(Random& random, const Geometry& geometry, bool zeros) {
  const Images images =
      AnyImages(random, AnyBlocks(random, geometry.blocks()), geometry, zeros || random() % 2 == 0);
  Source source;
  source.truth = reference::ChangedBytes(images.base, images.target, geometry.block);
  const std::span<const uint8_t> target = Keep(source, images.target);
  const MemoryOptions options{.block_size = geometry.block};
  source.cursor =
      zeros ? ValueOf(MakeBorrowedMemoryAllocationCursor(target, options))
            : ValueOf(MakeBorrowedMemoryDeltaCursor(Keep(source, images.base), target, options));
  return source;
}

// The blocks as bits, in a random layout.
BitmapView AnyBitmap(Random& random, Source& source, const ByteSet& blocks) {
  BitmapFormat format;
  uint64_t first = 0;
  if (random() % 2 == 0) {
    if (random() % 2 == 0) format.order = BitmapFormat::BitOrder::kMostSignificantFirst;
    format.inverted = random() % 2 == 0;
    format.reversed_word_bytes = OneOf<uint8_t>(random, {1, 1, 2, 4, 8});
    first = random() % 20;
  }
  const uint64_t word = format.reversed_word_bytes;
  // The bits around the bitmap are noise.
  Bytes bytes((first + blocks.size() + 8 * word - 1) / (8 * word) * word,
              static_cast<uint8_t>(random()));
  for (uint64_t b = 0; b < blocks.size(); ++b) {
    const uint64_t at = first + b;
    const uint64_t byte = at / 8 / word * word + (word - 1 - at / 8 % word);
    const unsigned bit = format.order == BitmapFormat::BitOrder::kMostSignificantFirst
                             ? 7 - static_cast<unsigned>(at % 8)
                             : static_cast<unsigned>(at % 8);
    const auto mask = static_cast<uint8_t>(1u << bit);
    bytes[byte] = static_cast<uint8_t>(blocks[b] != format.inverted ? bytes[byte] | mask
                                                                    : bytes[byte] & ~mask);
  }
  return ValueOf(BitmapView::Create(Keep(source, bytes), first, blocks.size(), format));
}

ChangeMap BuiltMap(Random& random, const ByteSet& blocks, const Geometry& geometry) {
  ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create({geometry.capacity, geometry.block}));
  Ranges runs = reference::RunsOf(blocks);
  if (random() % 2 == 0) std::shuffle(runs.begin(), runs.end(), random);
  for (const auto& [first, count] : runs) {
    if (random() % 2 == 0) {
      EXPECT_OK(builder.AddBlocks(first, first + count));
      continue;
    }
    // From any byte of the first block to any byte of the last.
    const uint64_t end = std::min(geometry.capacity, (first + count) * geometry.block);
    const uint64_t last = (first + count - 1) * geometry.block;
    const uint64_t from = first * geometry.block + (count == 1 ? 0 : random() % geometry.block);
    EXPECT_OK(builder.Add({from, last + 1 + random() % (end - last) - from}));
  }
  return ValueOf(builder.Build());
}

ChangeMap ThroughAFile(const ChangeMap& map) {
  return ValueOf(DecodeChangeMap(ValueOf(EncodeChangeMap(map)), "case"));
}

bool Combine(unsigned operation, bool a, bool b) {
  return operation == 0 ? a != b : operation == 1 ? b && !a : operation == 2 ? a || b : a && b;
}

ByteSet Combined(unsigned operation, const ByteSet& a, const ByteSet& b) {
  ByteSet set(a.size());
  for (size_t i = 0; i < a.size(); ++i) set[i] = Combine(operation, a[i], b[i]);
  return set;
}

constexpr BitmapOp kBitmapOps[] = {BitmapOp::kXor, BitmapOp::kAndNot, BitmapOp::kOr,
                                   BitmapOp::kAnd};

// A cursor of a random kind over `blocks`.
CursorPtr AnyCursor(Random& random, Source& source, const ByteSet& blocks,
                    const Geometry& geometry) {
  switch (random() % 3) {
    case 0:
      return ValueOf(
          MakeBorrowedBitmapCursor(AnyBitmap(random, source, blocks),
                                   {.capacity = geometry.capacity, .granularity = geometry.block}));
    case 1:
      return MakeChangeMapCursor(BuiltMap(random, blocks, geometry));
    default: {
      std::vector<Extent> extents;
      for (const auto& [offset, length] : reference::RunsOf(BytesOfBlocks(blocks, geometry))) {
        // Neighbours may touch.
        const uint64_t half = length / 2 / geometry.block * geometry.block;
        if (half > 0 && random() % 4 == 0) {
          extents.push_back({offset, half});
          extents.push_back({offset + half, length - half});
        } else {
          extents.push_back({offset, length});
        }
      }
      return ValueOf(Coalesce(ValueOf(MakeExtentCursor(
          extents, {.capacity = geometry.capacity, .granularity = geometry.block}))));
    }
  }
}

Source AnySource(Random& random, Form form, const Geometry& geometry) {
  if (form == Form::kImages || form == Form::kAllocation) {
    return FromImages(random, geometry, form == Form::kAllocation);
  }
  Source source;
  const VolumeGeometry volume{geometry.capacity, geometry.block};
  const ByteSet a = AnyBlocks(random, geometry.blocks());
  const ByteSet b = AnyBlocks(random, geometry.blocks());
  const auto operation = static_cast<unsigned>(random() % 4);
  ByteSet blocks = a;
  switch (form) {
    case Form::kBitmap:
      source.cursor = ValueOf(
          MakeBorrowedBitmapCursor(AnyBitmap(random, source, a),
                                   {.capacity = geometry.capacity, .granularity = geometry.block}));
      break;
    case Form::kTwoBitmaps: {
      const BitmapView base = AnyBitmap(random, source, a);
      const BitmapView target = AnyBitmap(random, source, b);
      source.cursor = ValueOf(
          MakeBorrowedBitmapCursor(base, target, kBitmapOps[operation],
                                   {.capacity = geometry.capacity, .granularity = geometry.block}));
      blocks = Combined(operation, a, b);
      break;
    }
    case Form::kExtents:
      source.cursor = AnyCursor(random, source, a, geometry);
      break;
    case Form::kMapFile:
      source.cursor = MakeChangeMapCursor(ThroughAFile(BuiltMap(random, a, geometry)));
      break;
    case Form::kPortable: {
      const ChangeMap map = ValueOf(ChangeMap::FromBitmap(AnyBitmap(random, source, a), volume));
      const Bytes bytes(map->portable().begin(), map->portable().end());
      source.cursor = random() % 2 == 0 ? MakeBorrowedChangeMapCursor(ValueOf(
                                              ChangeMapView::Create(Keep(source, bytes), volume)))
                                        : MakeChangeMapCursor(ValueOf(ChangeMap::FromPortable32(
                                              ValueOf(map.ToPortable32()), volume)));
      break;
    }
    case Form::kMapAlgebra: {
      const ChangeMap first = BuiltMap(random, a, geometry);
      const ChangeMap second = BuiltMap(random, b, geometry);
      const ChangeMap result = operation == 0   ? ValueOf(SymmetricDifference(first, second))
                               : operation == 1 ? ValueOf(Difference(second, first))
                               : operation == 2 ? ValueOf(Union(first, second))
                                                : ValueOf(Intersection(first, second));
      source.cursor = MakeChangeMapCursor(ThroughAFile(result));
      blocks = Combined(operation, a, b);
      break;
    }
    case Form::kMapUnion: {
      const std::vector<ChangeMap> maps = {BuiltMap(random, a, geometry),
                                           BuiltMap(random, b, geometry)};
      source.cursor = ValueOf(MakeUnionCursor(maps));
      blocks = Combined(2, a, b);
      break;
    }
    case Form::kCursorAlgebra: {
      CursorPtr first = AnyCursor(random, source, a, geometry);
      CursorPtr second = AnyCursor(random, source, b, geometry);
      // These have no exclusive form.
      const unsigned kind = operation == 0 ? 2 : operation;
      if (kind == 2) {
        std::vector<CursorPtr> inputs;
        inputs.push_back(std::move(first));
        inputs.push_back(std::move(second));
        source.cursor = ValueOf(Union(std::move(inputs)));
      } else if (kind == 1) {
        source.cursor = ValueOf(Subtract(std::move(second), std::move(first)));
      } else {
        source.cursor = ValueOf(Intersect(std::move(first), std::move(second)));
      }
      blocks = Combined(kind, a, b);
      break;
    }
    default: {  // the whole chain
      Source images = FromImages(random, geometry, false);
      ByteSet found(geometry.blocks());
      EXPECT_OK(ForEachBatch(*images.cursor, [&](const ExtentBatch& batch) {
        for (size_t i = 0; i < batch.size(); ++i) {
          for (uint64_t at = batch[i].offset; at < batch[i].end(); at += geometry.block) {
            found[at / geometry.block] = true;
          }
        }
        return absl::OkStatus();
      }));
      const CursorPtr bits = ValueOf(
          MakeBorrowedBitmapCursor(AnyBitmap(random, source, found),
                                   {.capacity = geometry.capacity, .granularity = geometry.block}));
      source.cursor = MakeChangeMapCursor(ThroughAFile(ValueOf(ChangeMap::FromCursor(*bits))));
      source.truth = std::move(images.truth);
      return source;
    }
  }
  source.truth = BytesOfBlocks(blocks, geometry);
  return source;
}

// ---- transforms

uint64_t Count(const Ranges& ranges) {
  uint64_t bytes = 0;
  for (const auto& [offset, length] : ranges) bytes += length;
  return bytes;
}

// What the stack of transforms guarantees.
struct Promise {
  ByteSet want;          // what must be reported
  ByteSet truth;         // the part of it that changed
  uint64_t allowed = 0;  // bytes that may be reported, from each transform's bound
  bool exact = true;
  bool cut = false;     // adjacent extents may follow each other
  uint64_t pieces = 0;  // > 0: cut into pieces of exactly this length
  uint64_t blocks = 0;  // > 0: blocks of this size
  std::string text;
};

void AddTransform(Random& random, CursorPtr& cursor, Promise& promise) {
  const uint64_t capacity = promise.want.size();
  const auto units = [&] { return OneOf<uint64_t>(random, {1, 2, 3, 5, 8, 64, 100, 512, 3000}); };
  const auto widen = [&](ByteSet want, uint64_t each, uint64_t times) {
    promise.allowed = std::min(capacity, promise.allowed + each * times);
    promise.want = std::move(want);
    promise.exact = false;
    promise.cut = false;
  };
  const uint64_t runs = reference::RunsOf(promise.want).size();
  promise.pieces = 0;
  switch (random() % 6) {
    case 0: {
      const uint64_t gap = random() % 3 == 0 ? 0 : units();
      absl::StrAppend(&promise.text, " coalesce ", gap);
      cursor = ValueOf(Coalesce(std::move(cursor), gap));
      promise.cut = false;
      if (gap > 0) widen(reference::Bridged(promise.want, gap), gap, runs == 0 ? 0 : runs - 1);
      break;
    }
    case 1: {
      const uint64_t granularity = units();
      absl::StrAppend(&promise.text, " align ", granularity);
      cursor = ValueOf(AlignOutward(std::move(cursor), granularity));
      widen(reference::RoundedOutward(promise.want, granularity), 2 * (granularity - 1), runs);
      break;
    }
    case 2: {
      const uint64_t begin = random() % (capacity + 1);
      const uint64_t end = begin + random() % (capacity - begin + 1);
      absl::StrAppend(&promise.text, " clip ", begin, "..", end);
      cursor = ValueOf(Clip(std::move(cursor), begin, end));
      promise.want = reference::Window(promise.want, begin, end);
      promise.truth = reference::Window(promise.truth, begin, end);
      break;
    }
    case 3: {
      const uint64_t length = cursor->granularity() * (1 + random() % 10);
      absl::StrAppend(&promise.text, " split ", length);
      cursor = ValueOf(Split(std::move(cursor), length));
      // Pieces of pieces vary in length.
      promise.pieces = promise.cut ? 0 : length;
      promise.cut = true;
      break;
    }
    case 4: {  // through a map, possibly a coarser one
      const uint64_t granularity = random() % 2 == 0 ? 0 : units();
      const uint64_t blocks = granularity == 0 ? cursor->granularity() : granularity;
      absl::StrAppend(&promise.text, " map ", blocks);
      cursor =
          MakeChangeMapCursor(ThroughAFile(ValueOf(ChangeMap::FromCursor(*cursor, granularity))));
      widen(reference::RoundedOutward(promise.want, blocks), 2 * (blocks - 1), runs);
      break;
    }
    case 5:
      promise.blocks = units();
      absl::StrAppend(&promise.text, " blocks ", promise.blocks);
      cursor = ValueOf(ToBlocks(std::move(cursor), promise.blocks));
      widen(reference::RoundedOutward(promise.want, promise.blocks), 2 * (promise.blocks - 1),
            runs);
      break;
  }
}

Ranges Merged(const Ranges& ranges) {
  Ranges merged;
  for (const auto& [offset, length] : ranges) {
    if (!merged.empty() && merged.back().first + merged.back().second == offset) {
      merged.back().second += length;
    } else {
      merged.emplace_back(offset, length);
    }
  }
  return merged;
}

// ---- the loop

struct Totals {
  uint64_t cases = 0;
  uint64_t per_form[static_cast<size_t>(Form::kCount)] = {};
  uint64_t streams = 0;
  uint64_t blocks_compared = 0;
  uint64_t blocks_missed = 0;
  uint64_t differences = 0;  // streams that broke any guarantee
  uint64_t malformed = 0;    // unordered, overlapping, empty or past the end
  uint64_t exact_true = 0;
  uint64_t exact_reported = 0;
  uint64_t rounded_true = 0;
  uint64_t rounded_reported = 0;
  uint64_t over_bound = 0;
  std::vector<double> ratios;
};

// Checks that tuples ascend, do not overlap, are not empty and start inside the volume. Only blocks
// may reach past its end. A failure names the first bad tuple.
testing::AssertionResult WellFormed(const Ranges& ranges, uint64_t capacity, bool blocks) {
  uint64_t floor = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& [offset, length] = ranges[i];
    const char* const wrong = offset < floor                          ? "begins before"
                              : length == 0                           ? "is empty, after"
                              : offset >= capacity                    ? "begins past the end, after"
                              : offset + length > capacity && !blocks ? "ends past the end, after"
                                                                      : nullptr;
    if (wrong != nullptr) {
      return testing::AssertionFailure()
             << "tuple " << i << " of " << ranges.size() << ", (" << offset << ", " << length
             << "), " << wrong << " " << floor << " in a volume of " << capacity;
    }
    floor = offset + length;
  }
  return testing::AssertionSuccess();
}

// The number of blocks with a byte of `truth` that `reported` lacks.
uint64_t MissedBlocks(const Ranges& truth, const Ranges& reported, const Geometry& geometry) {
  const ByteSet got = reference::BytesOf(reported, geometry.capacity);
  uint64_t missed = 0;
  uint64_t next = 0;
  for (const auto& [offset, length] : truth) {
    for (uint64_t i = offset; i < offset + length; ++i) {
      if (got[i] || i / geometry.block < next) continue;
      ++missed;
      next = i / geometry.block + 1;
    }
  }
  return missed;
}

// Reads `cursor` from `start` and compares it with the guarantee.
void CheckStream(ExtentCursor& cursor, uint64_t start, size_t batch, bool pieces_allowed,
                 const Promise& promise, const Geometry& geometry, const std::string& what,
                 Totals& totals) {
  const absl::StatusOr<Ranges> drained = test::DrainFrom(cursor, start, batch);
  ++totals.streams;
  if (!drained.ok()) {
    ++totals.differences;
    ADD_FAILURE() << what << ": " << drained.status();
    return;
  }
  const uint64_t capacity = geometry.capacity;
  const uint64_t position =
      start == capacity ? start : start / cursor.granularity() * cursor.granularity();
  const auto from_there = [&](const ByteSet& set) {
    return position == capacity ? Ranges{} : reference::CutAt(reference::RunsOf(set), position);
  };
  Ranges want = from_there(promise.want);
  if (promise.blocks > 0) {
    const Ranges blocks = reference::BlocksOf(promise.want, promise.blocks);
    want = position == capacity ? Ranges{} : reference::CutAt(blocks, position);
  } else if (promise.pieces > 0) {
    want = reference::PiecesOf(want, promise.pieces);
  }
  const bool as_they_are =
      promise.blocks > 0 || promise.pieces > 0 || !(pieces_allowed || promise.cut);
  const Ranges got = as_they_are ? *drained : Merged(*drained);
  if (got != want) {
    ++totals.differences;
    ADD_FAILURE() << what << ": got " << testing::PrintToString(got).substr(0, 400) << ", want "
                  << testing::PrintToString(want).substr(0, 400);
  }
  if (const testing::AssertionResult formed = WellFormed(*drained, capacity, promise.blocks > 0);
      !formed) {
    ++totals.malformed;
    ADD_FAILURE() << what << ": " << formed.message();
  }
  // Independently of `want`: no change may be missing, and no more may be reported than the
  // transforms may add.
  const Ranges truth = from_there(promise.truth);
  const Ranges merged = Merged(*drained);
  const uint64_t changed = Count(truth);
  uint64_t reported = Count(merged);
  if (!merged.empty()) {
    const uint64_t end = merged.back().first + merged.back().second;
    reported -= end > capacity ? end - capacity : 0;
  }
  totals.blocks_compared += (capacity - position + geometry.block - 1) / geometry.block;
  if (merged != truth) {
    const uint64_t missed = MissedBlocks(truth, merged, geometry);
    totals.blocks_missed += missed;
    EXPECT_EQ(missed, 0u) << what;
  }
  if (promise.exact) {
    totals.exact_true += changed;
    totals.exact_reported += reported;
    return;
  }
  totals.rounded_true += changed;
  totals.rounded_reported += reported;
  if (changed > 0) {
    totals.ratios.push_back(static_cast<double>(reported) / static_cast<double>(changed));
  }
  if (reported > promise.allowed) {
    ++totals.over_bound;
    ADD_FAILURE() << what << ": " << reported << " bytes, " << promise.allowed << " are allowed";
  }
}

void RunCase(uint64_t number, Totals& totals) {
  Random random(number);
  const auto form = static_cast<Form>(random() % static_cast<uint64_t>(Form::kCount));
  const bool image =
      form == Form::kImages || form == Form::kAllocation || form == Form::kWholeChain;
  const Geometry geometry = AnyGeometry(random, image);
  Source source = AnySource(random, form, geometry);
  Promise promise;
  promise.want = promise.truth = source.truth;
  promise.allowed = Count(reference::RunsOf(source.truth));
  for (uint64_t stages = random() % 4; stages > 0 && promise.blocks == 0; --stages) {
    AddTransform(random, source.cursor, promise);
  }
  const bool pieces_allowed = random() % 8 == 0;
  if (pieces_allowed) source.cursor->AllowPieces();
  const std::string what =
      absl::StrCat("case ", number, " (", kFormNames[static_cast<size_t>(form)], ", capacity ",
                   geometry.capacity, ", block ", geometry.block, ",", promise.text, ")");
  const size_t batch = 1 + random() % 40;
  const uint64_t start = random() % 3 == 0 ? 0 : random() % (geometry.capacity + 1);
  CheckStream(*source.cursor, start, batch, pieces_allowed, promise, geometry,
              absl::StrCat(what, " from ", start), totals);
  // A cursor can seek back after reading.
  if (start != 0 && random() % 4 == 0) {
    CheckStream(*source.cursor, 0, batch, pieces_allowed, promise, geometry, what, totals);
  }
  ++totals.cases;
  ++totals.per_form[static_cast<size_t>(form)];
}

TEST(TruthTest, EveryChangedBlockIsReportedAndNoOther) {
  Totals totals;
  if (const char* const only = std::getenv("CBT_TRUTH_CASE"); only != nullptr) {
    RunCase(std::strtoull(only, nullptr, 10), totals);
    return;
  }
  const uint64_t cases = 25'000 * static_cast<uint64_t>(test::TestScale()) / test::kThinned;
  for (uint64_t number = 0; number < cases && !HasFailure(); ++number) RunCase(number, totals);
  const auto ratio = [](uint64_t reported, uint64_t changed) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(4)
         << static_cast<double>(reported) / static_cast<double>(std::max<uint64_t>(changed, 1));
    return text.str();
  };
  test::PrintFigure("r1_cases", totals.cases);
  for (size_t i = 0; i < std::size(kFormNames); ++i) {
    test::PrintFigure(absl::StrCat("r1_cases_", kFormNames[i]), totals.per_form[i]);
    EXPECT_GT(totals.per_form[i], cases / 20) << kFormNames[i];
  }
  test::PrintFigure("r1_streams", totals.streams);
  test::PrintFigure("r1_blocks_compared", totals.blocks_compared);
  test::PrintFigure("r1_blocks_missed", totals.blocks_missed);
  test::PrintFigure("r1_streams_not_as_promised", totals.differences);
  test::PrintFigure("r1_malformed_streams", totals.malformed);
  test::PrintFigure("r24_exact_bytes_changed", totals.exact_true);
  test::PrintFigure("r24_exact_ratio", ratio(totals.exact_reported, totals.exact_true));
  test::PrintFigure("r24_rounded_bytes_changed", totals.rounded_true);
  test::PrintFigure("r24_rounded_ratio", ratio(totals.rounded_reported, totals.rounded_true));
  std::sort(totals.ratios.begin(), totals.ratios.end());
  for (const unsigned percent : {50u, 90u, 99u}) {
    test::PrintFigure(absl::StrCat("r24_rounded_ratio_p", percent),
                      totals.ratios[totals.ratios.size() * percent / 100]);
  }
  test::PrintFigure("r24_rounded_streams", totals.ratios.size());
  test::PrintFigure("r24_streams_over_their_bound", totals.over_bound);
  EXPECT_EQ(totals.exact_reported, totals.exact_true);
}

}  // namespace truth_test
}  // namespace cbt
