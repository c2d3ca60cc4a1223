// Every map operation at every boundary: cardinalities at which a container changes its kind, ends
// of containers, of 2^16 and of 2^32 blocks, capacities around every power of two, partial last
// blocks, empty and one-block volumes, the largest offsets.
//
// Sets are run lists here; the oracle walks their ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_map_file.h"
#include "cbt/change_tracker.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/map/maps.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/cursors.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"

namespace cbt {
namespace boundary_test {

using test::ValueOf;

using reference::Ranges;
using Bytes = std::vector<uint8_t>;

// ---- the oracle

// The elements for which `operation` holds, as maximal runs.
Ranges Combine(const Ranges& a, const Ranges& b, const std::function<bool(bool, bool)>& operation) {
  std::vector<std::pair<uint64_t, int>> steps;  // where a set starts or ends: 1 for a, 2 for b
  for (const auto& [first, count] : a) {
    steps.emplace_back(first, 1);
    steps.emplace_back(first + count, 1);
  }
  for (const auto& [first, count] : b) {
    steps.emplace_back(first, 2);
    steps.emplace_back(first + count, 2);
  }
  std::sort(steps.begin(), steps.end());
  Ranges out;
  int state = 0;
  bool inside = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    state ^= steps[i].second;
    if (i + 1 < steps.size() && steps[i + 1].first == steps[i].first) continue;
    const bool now = operation((state & 1) != 0, (state & 2) != 0);
    if (now && !inside) out.emplace_back(steps[i].first, 0);
    if (!now && inside) out.back().second = steps[i].first - out.back().first;
    inside = now;
  }
  return out;
}

bool Or(bool a, bool b) { return a || b; }
bool And(bool a, bool b) { return a && b; }
bool AndNot(bool a, bool b) { return a && !b; }
bool Xor(bool a, bool b) { return a != b; }

uint64_t CountOf(const Ranges& runs) {
  uint64_t count = 0;
  for (const auto& run : runs) count += run.second;
  return count;
}

// The number of elements in [begin, end).
uint64_t CountIn(const Ranges& runs, uint64_t begin, uint64_t end) {
  uint64_t count = 0;
  for (const auto& [first, length] : runs) {
    const uint64_t from = std::max(first, begin);
    const uint64_t to = std::min(first + length, end);
    count += from < to ? to - from : 0;
  }
  return count;
}

uint64_t BlocksOf(const VolumeGeometry& volume) {
  return volume.capacity / volume.granularity + (volume.capacity % volume.granularity != 0 ? 1 : 0);
}

// Blocks as byte ranges of the volume.
Ranges BytesOf(const Ranges& runs, const VolumeGeometry& volume) {
  Ranges out;
  for (const auto& [first, count] : runs) {
    const uint64_t begin = first * volume.granularity;
    const bool cut = first + count == BlocksOf(volume);
    out.emplace_back(begin, cut ? volume.capacity - begin : count * volume.granularity);
  }
  return out;
}

// The blocks of another size that contain a byte of `bytes`.
Ranges InBlocksOf(uint64_t size, const Ranges& bytes) {
  Ranges out;
  for (const auto& [offset, length] : bytes) {
    uint64_t first = offset / size;
    const uint64_t last = (offset + length - 1) / size;
    if (!out.empty()) first = std::max(first, out.back().first + out.back().second);
    if (first > last) continue;
    if (!out.empty() && out.back().first + out.back().second == first) {
      out.back().second += last + 1 - first;
    } else {
      out.emplace_back(first, last + 1 - first);
    }
  }
  return out;
}

// ---- the list

struct Case {
  std::string name;
  VolumeGeometry volume;
  Ranges runs;  // of blocks, maximal
};

// `count` members in runs of `length`, `gap` apart, starting at `from`.
Ranges Members(uint64_t from, uint64_t count, uint64_t length, uint64_t gap) {
  Ranges runs;
  for (; count > 0; from += length + gap) {
    runs.emplace_back(from, std::min(length, count));
    count -= runs.back().second;
  }
  return runs;
}

std::vector<Case> TheList() {
  std::vector<Case> list;
  // A volume whose last container has key 65538 and whose last block is partial.
  constexpr VolumeGeometry kLarge = {(uint64_t{65539} << 16) * 512 - 511, 512};
  for (const uint64_t key : {0u, 1u, 65535u, 65536u, 65538u}) {
    const uint64_t base = key << 16;
    for (uint64_t n = 4094; n <= 4098; ++n) {
      // Single members: an array up to 4096, then a bitset. Then the same in runs.
      for (const uint64_t length : {1u, 2u, 40u}) {
        const uint64_t gap = length == 1 ? 2 : length;
        const Ranges front = Members(base, n, length, gap);
        const uint64_t to_the_end = 65536 - (front.back().first + front.back().second - base);
        list.push_back({absl::StrCat(n, " by ", length, " in ", key), kLarge, front});
        list.push_back({absl::StrCat(n, " by ", length, " at the end of ", key), kLarge,
                        Members(base + to_the_end, n, length, gap)});
      }
    }
    for (const uint64_t hole : {0u, 1u, 4095u, 4096u, 32768u, 65534u, 65535u}) {
      list.push_back({absl::StrCat("all but ", hole, " in ", key), kLarge,
                      Combine({{base, 65536}}, {{base + hole, 1}}, AndNot)});
    }
    list.push_back({absl::StrCat("every other one of ", key), kLarge, Members(base, 32768, 1, 1)});
    list.push_back({absl::StrCat("both ends of ", key), kLarge, {{base, 1}, {base + 65535, 1}}});
    // Run counts just below and above the size of a bitset.
    for (const uint64_t runs : {2046u, 2047u, 2048u, 2049u}) {
      list.push_back(
          {absl::StrCat(runs, " runs in ", key), kLarge, Members(base, 5 * runs, 5, 20)});
    }
    if (key == 0) continue;
    for (uint64_t length = 65534; length <= 65538; ++length) {
      for (const uint64_t before : {0u, 1u, 2u, 65535u}) {
        if (base - before + length > BlocksOf(kLarge)) continue;
        list.push_back({absl::StrCat(length, " from ", before, " before ", key),
                        kLarge,
                        {{base - before, length}}});
      }
    }
  }
  for (const uint64_t edge : {uint64_t{64}, uint64_t{512}, uint64_t{4096}, uint64_t{65536},
                              uint64_t{131072}, uint64_t{1} << 32, (uint64_t{1} << 32) + 65536}) {
    for (uint64_t first = edge - 2; first <= edge + 1; ++first) {
      for (uint64_t length = 1; length <= 3; ++length) {
        list.push_back({absl::StrCat(length, " from ", first), kLarge, {{first, length}}});
      }
    }
  }
  // Capacities around powers of two, with block sizes that divide them and that do not.
  for (unsigned k = 12; k <= 63; ++k) {
    for (const int64_t by : {-1, 0, 1}) {
      if (k == 63 && by >= 0) continue;  // 2^63 - 1 is the largest
      const uint64_t capacity = (uint64_t{1} << k) + static_cast<uint64_t>(by);
      for (const uint64_t size : {uint64_t{1}, uint64_t{512}, uint64_t{1000}, uint64_t{4096},
                                  uint64_t{1} << (k / 2), uint64_t{1} << (k - 1)}) {
        const VolumeGeometry volume{capacity, size};
        const uint64_t blocks = BlocksOf(volume);
        const uint64_t middle = blocks / 2;
        Ranges runs = {{0, 1}};
        runs = Combine(runs, {{middle, 1}}, Or);
        runs = Combine(runs, {{blocks - 1, 1}}, Or);
        const std::string name = absl::StrCat("capacity 2^", k, " + ", by, ", blocks of ", size);
        list.push_back({name + ", first, middle and last", volume, runs});
        list.push_back({name + ", last", volume, {{blocks - 1, 1}}});
        const uint64_t tail = std::min<uint64_t>(blocks, 65537);
        list.push_back({name + ", the last 65537", volume, {{blocks - tail, tail}}});
      }
    }
  }
  for (const uint64_t size : {uint64_t{1}, uint64_t{512}, uint64_t{1000}, kMaxGranularity}) {
    list.push_back({absl::StrCat("no block of ", size), {0, size}, {}});
    list.push_back({absl::StrCat("one byte of a block of ", size), {1, size}, {{0, 1}}});
    list.push_back({absl::StrCat("one block of ", size), {size, size}, {{0, 1}}});
    list.push_back({absl::StrCat("a block of ", size, " that has not changed"), {size, size}, {}});
  }
  list.push_back(
      {"the largest volume", {kMaxCapacity, kGiB}, {{0, BlocksOf({kMaxCapacity, kGiB})}}});
  list.push_back({"the largest blocks", {kMaxCapacity, kMaxGranularity}, {{0, 2}}});
  return list;
}

// ---- every operation

class BoundaryTest : public testing::Test {
 protected:
  // Counts one check, and one failure unless `right`.
  void Expect(bool right, const char* operation) {
    ++checks_;
    ++per_operation_[operation];
    if (right) return;
    if (++failed_ < 20) ADD_FAILURE() << case_->name << ": " << operation;
  }

  void ExpectCursor(const char* operation, absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor,
                    const Ranges& want) {
    if (!cursor.ok()) return Expect(false, operation);
    const absl::StatusOr<Ranges> got = test::Drain(**cursor, 1000);
    Expect(got.ok() && *got == want, operation);
  }

  void ExpectMap(const char* operation, const absl::StatusOr<ChangeMap>& map, const Ranges& want,
                 const VolumeGeometry& volume) {
    if (!map.ok()) return Expect(false, operation);
    const absl::StatusOr<Ranges> got = test::Drain(*MakeChangeMapCursor(*map), 1000);
    Expect(got.ok() && *got == BytesOf(want, volume) && (*map)->geometry() == volume &&
               (*map)->cardinality() == CountOf(want),
           operation);
    // The result of an operation has the same bytes as a map built directly.
    const ChangeMap direct = Built(want, volume);
    Expect(std::ranges::equal(direct->portable(), (*map)->portable()), "canonical");
  }

  static ChangeMap Built(const Ranges& runs, const VolumeGeometry& volume) {
    ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create(volume));
    for (const auto& [first, count] : runs) {
      EXPECT_OK(builder.AddBlocks(first, first + count));
    }
    return ValueOf(builder.Build());
  }

  void Run(const Case& boundary) {
    case_ = &boundary;
    volume_ = boundary.volume;
    blocks_ = BlocksOf(volume_);
    const Ranges& runs = boundary.runs;
    const ChangeMap map = Built(runs, volume_);
    const ChangeMapStatistics statistics = map->Statistics();
    arrays_ += statistics.arrays > 0;
    bitsets_ += statistics.bitsets > 0;
    runs_ += statistics.run_containers > 0;
    const Ranges bytes = BytesOf(runs, volume_);
    Expect(statistics.blocks == CountOf(runs) && statistics.runs == runs.size() &&
               statistics.bytes == CountOf(bytes) && map->changed_bytes() == CountOf(bytes),
           "statistics");
    Build(map, runs, bytes);
    Encode(map, runs, bytes);
    Cursors(map, bytes);
    Queries(map, runs, bytes);
    Algebra(map, runs);
    Geometry(map, runs, bytes);
    Track(runs);
  }

  void Build(const ChangeMap& map, const Ranges& runs, const Ranges& bytes) {
    Ranges shuffled = runs;
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(1));
    ExpectMap("build in any order", Built(shuffled, volume_), runs, volume_);
    ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create(volume_));
    for (const auto& [offset, length] : bytes) {  // its first byte, its last, and one in between
      EXPECT_OK(builder.Add({offset, 1}));
      EXPECT_OK(builder.Add({offset + length - 1, 1}));
      EXPECT_OK(builder.Add({offset, length}));
    }
    ExpectMap("build from bytes", builder.Build(), runs, volume_);
    Expect(
        !builder.AddBlocks(blocks_, blocks_ + 1).ok() && !builder.Add({volume_.capacity, 1}).ok(),
        "refuse what lies past the end");
    const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
    ExpectMap("build from a cursor", ChangeMap::FromCursor(*cursor), runs, volume_);
    if (blocks_ > 300'000) return;
    Bytes bits((blocks_ + 7) / 8);
    for (const auto& [first, count] : runs) {
      for (uint64_t b = first; b < first + count; ++b) {
        bits[b / 8] = static_cast<uint8_t>(bits[b / 8] | 1u << b % 8);
      }
    }
    const BitmapView view = ValueOf(BitmapView::Create(bits, 0, blocks_));
    ExpectMap("build from a bitmap", ChangeMap::FromBitmap(view, volume_), runs, volume_);
    ExpectCursor("a bitmap's cursor", MakeBorrowedBitmapCursor(view, volume_), bytes);
  }

  void Encode(const ChangeMap& map, const Ranges& runs, const Ranges& bytes) {
    const Bytes file = ValueOf(EncodeChangeMap(map));
    const absl::StatusOr<ChangeMap> decoded = DecodeChangeMap(file, "x");
    ExpectMap("decode", decoded, runs, volume_);
    Expect(decoded.ok() && ValueOf(EncodeChangeMap(*decoded)) == file, "encode again");
    // A view at an odd address.
    Bytes moved(map->portable().size() + 1);
    std::copy(map->portable().begin(), map->portable().end(), moved.begin() + 1);
    const absl::StatusOr<ChangeMapView> view =
        ChangeMapView::Create(std::span<const uint8_t>(moved).subspan(1), volume_);
    Expect(view.ok() && *view == map.view(), "view");
    if (view.ok()) ExpectCursor("a view's cursor", MakeBorrowedChangeMapCursor(*view), bytes);
    ExpectMap("import", ChangeMap::FromPortable64(map->portable(), volume_), runs, volume_);
    const bool fits = CountIn(runs, uint64_t{1} << 32, UINT64_MAX) == 0;
    const absl::StatusOr<Bytes> small = map.ToPortable32();
    Expect(small.ok() == fits, "export");
    if (small.ok()) {
      // The export of an empty map spends more bytes than a map may take here.
      absl::StatusOr<ChangeMap> imported = ChangeMap::FromPortable32(*small, volume_);
      EXPECT_TRUE(imported.ok() && imported->Optimize().ok());
      ExpectMap("import of 32 bits", imported, runs, volume_);
    }
    // A volume that ends before the last block must refuse it.
    if (!runs.empty()) {
      const uint64_t last = runs.back().first + runs.back().second - 1;
      Expect(
          !ChangeMapView::Create(map->portable(), {last * volume_.granularity, volume_.granularity})
               .ok(),
          "refuse a block past the end");
    }
  }

  // Interesting positions: the ends of the first and last runs, of containers, of the volume.
  std::vector<uint64_t> Probes(const Ranges& runs) const {
    std::vector<uint64_t> blocks = {
        0, blocks_ / 2, blocks_, 63, 64, 65535, 65536, (uint64_t{1} << 32) - 1, uint64_t{1} << 32};
    for (const size_t at : {size_t{0}, runs.size() / 2, runs.size() - 1}) {
      if (at >= runs.size()) continue;
      blocks.push_back(runs[at].first);
      blocks.push_back(runs[at].first + runs[at].second);
    }
    std::vector<uint64_t> probes;
    for (const uint64_t block : blocks) {
      for (uint64_t b = block - std::min<uint64_t>(block, 1); b <= block + 1; ++b) {
        if (b <= blocks_) probes.push_back(b);
      }
    }
    std::sort(probes.begin(), probes.end());
    probes.erase(std::unique(probes.begin(), probes.end()), probes.end());
    return probes;
  }

  void Cursors(const ChangeMap& map, const Ranges& bytes) {
    const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
    for (const size_t batch : {1u, 7u, 1024u}) {
      const absl::StatusOr<Ranges> got = test::DrainFrom(*cursor, 0, batch);
      Expect(got.ok() && *got == bytes, "cursor");
    }
    for (const uint64_t block : Probes(case_->runs)) {
      const uint64_t begin = std::min(volume_.capacity, block * volume_.granularity);
      for (const uint64_t offset : {begin, begin + volume_.granularity - 1}) {
        if (offset > volume_.capacity) continue;
        const uint64_t position =
            offset == volume_.capacity ? offset : offset - offset % volume_.granularity;
        const absl::StatusOr<Ranges> got = test::DrainFrom(*cursor, offset, 500);
        Expect(got.ok() && *got == reference::CutAt(bytes, position), "seek");
      }
    }
    Expect(cursor->Seek(volume_.capacity + 1).code() == absl::StatusCode::kOutOfRange &&
               cursor->Seek(UINT64_MAX).code() == absl::StatusCode::kOutOfRange,
           "refuse to seek past the end");
  }

  void Queries(const ChangeMap& map, const Ranges& runs, const Ranges& bytes) {
    const std::vector<uint64_t> probes = Probes(runs);
    for (const uint64_t block : probes) {
      Expect(map->Contains(block) == (CountIn(runs, block, block + 1) == 1), "contains");
      Expect(map->Rank(block) == CountIn(runs, 0, block), "rank");
      const uint64_t offset = std::min(volume_.capacity, block * volume_.granularity);
      Expect(map->ChangedBytesBelow(offset) == CountIn(bytes, 0, offset), "bytes below");
    }
    for (size_t i = 0; i + 1 < probes.size(); ++i) {
      const uint64_t end = i % 3 == 0 ? probes.back() : probes[i + 1];
      Expect(
          map->ContainsRange(probes[i], end) == (CountIn(runs, probes[i], end) == end - probes[i]),
          "contains a range");
    }
  }

  void Algebra(const ChangeMap& map, const Ranges& runs) {
    // The empty set, the set itself, one block added at each end, one removed, and the set shifted
    // by one.
    std::vector<Ranges> others = {{}, runs};
    if (!runs.empty()) {
      const uint64_t last = runs.back().first + runs.back().second - 1;
      others.push_back({{runs.front().first, 1}});
      others.push_back({{last, 1}});
      others.push_back(Combine(runs, {{runs[runs.size() / 2].first, 1}}, AndNot));
      Ranges moved = runs;
      for (auto& [first, count] : moved) first += 1;
      others.push_back(Combine(moved, {{0, blocks_}}, And));
      const uint64_t container = last >> 16 << 16;
      others.push_back(Combine({{container, 65536}}, {{0, blocks_}}, And));
    }
    for (const Ranges& other : others) {
      const ChangeMap partner = Built(other, volume_);
      const Ranges either = Combine(runs, other, Or);
      ExpectMap("union", Union(map, partner), either, volume_);
      ExpectMap("intersection", Intersection(map, partner), Combine(runs, other, And), volume_);
      ExpectMap("difference", Difference(map, partner), Combine(runs, other, AndNot), volume_);
      ExpectMap("difference", Difference(partner, map), Combine(other, runs, AndNot), volume_);
      ExpectMap("symmetric difference", SymmetricDifference(map, partner),
                Combine(runs, other, Xor), volume_);
      const std::vector<ChangeMap> maps = {map, partner};
      ExpectCursor("merge", MakeUnionCursor(maps), BytesOf(either, volume_));
      ExpectCursor("intersection of cursors",
                   Intersect(MakeChangeMapCursor(map), MakeChangeMapCursor(partner)),
                   BytesOf(Combine(runs, other, And), volume_));
      ExpectCursor("subtraction of cursors",
                   Subtract(MakeChangeMapCursor(map), MakeChangeMapCursor(partner)),
                   BytesOf(Combine(runs, other, AndNot), volume_));
      Expect((map.view() == partner.view()) == (runs == other), "equality");
    }
  }

  void Geometry(const ChangeMap& map, const Ranges& runs, const Ranges& bytes) {
    for (const uint64_t size : {2 * volume_.granularity, 3 * volume_.granularity,
                                volume_.granularity / 2, volume_.granularity + 1}) {
      if (size == 0 || size > kMaxGranularity) continue;
      const Ranges want = InBlocksOf(size, bytes);
      if (volume_.capacity / size > uint64_t{1} << 47 && CountOf(want) > 1'000'000) continue;
      ExpectMap("granularity", WithGranularity(map, size), want, {volume_.capacity, size});
      if (size <= kMaxCapacity - volume_.capacity && CountOf(want) <= 200'000) {
        Ranges blocks;
        for (const auto& [first, count] : want) {
          for (uint64_t b = first; b < first + count; ++b) {
            blocks.emplace_back(b * size, size);
          }
        }
        ExpectCursor("blocks", ToBlocks(MakeChangeMapCursor(map), size), blocks);
      }
      if (size > volume_.granularity) {
        ExpectCursor("align", AlignOutward(MakeChangeMapCursor(map), size),
                     BytesOf(want, {volume_.capacity, size}));
      }
    }
    // Cut within a block and between two; extended by one byte and by two blocks.
    for (const uint64_t capacity :
         {blocks_ / 2 * volume_.granularity, blocks_ / 2 * volume_.granularity + 1,
          volume_.capacity - std::min<uint64_t>(volume_.capacity, 1), volume_.capacity + 1,
          volume_.capacity + 2 * volume_.granularity}) {
      if (capacity > kMaxCapacity) continue;
      const VolumeGeometry other{capacity, volume_.granularity};
      const uint64_t blocks = BlocksOf(other);
      Ranges want = Combine(runs, {{0, blocks}}, And);
      if (capacity > volume_.capacity) {  // the new part is unknown
        const uint64_t known = volume_.capacity / volume_.granularity;
        want = Combine(want, {{known, blocks - known}}, Or);
      }
      ExpectMap("capacity", WithCapacity(map, capacity), want, other);
    }
  }

  // A tracker that sees the same writes and is frozen into a map by a snapshot.
  void Track(const Ranges& runs) {
    if (blocks_ > 1'000'000 || blocks_ == 0) return;
    TrackerOptions options;
    options.geometry = volume_;
    options.volume = "vol";
    options.base = "monday";
    options.region_bytes = volume_.granularity;
    const absl::StatusOr<std::unique_ptr<ChangeTracker>> tracker = ChangeTracker::Create(options);
    if (!tracker.ok()) return Expect(false, "track");
    for (const auto& [offset, length] : BytesOf(runs, volume_)) {
      EXPECT_OK((*tracker)->Mark({offset, length}));
    }
    EXPECT_OK((*tracker)->OpenEpoch("tuesday"));
    ExpectMap("freeze", test::EndEpoch(**tracker), runs, volume_);
    Expect(ValueOf((*tracker)->Changes())->empty(), "an epoch begins empty");
  }

  const Case* case_ = nullptr;
  VolumeGeometry volume_;
  uint64_t blocks_ = 0;
  uint64_t checks_ = 0;
  uint64_t failed_ = 0;
  uint64_t arrays_ = 0;
  uint64_t bitsets_ = 0;
  uint64_t runs_ = 0;
  std::map<std::string, uint64_t> per_operation_;
};

TEST_F(BoundaryTest, EveryBoundaryThroughEveryOperation) {
  const std::vector<Case> list = TheList();
  for (size_t i = 0; i < list.size(); i += test::kThinned) Run(list[i]);
  test::PrintFigure("r2_boundaries", list.size() / test::kThinned);
  test::PrintFigure("r2_boundaries_with_arrays", arrays_);
  test::PrintFigure("r2_boundaries_with_bitsets", bitsets_);
  test::PrintFigure("r2_boundaries_with_runs", runs_);
  test::PrintFigure("r2_operations", per_operation_.size());
  test::PrintFigure("r2_checks", checks_);
  test::PrintFigure("r2_checks_failed", failed_);
  EXPECT_GT(arrays_, 0u);
  EXPECT_GT(bitsets_, 0u);
  EXPECT_GT(runs_, 0u);
  for (const auto& [operation, checks] : per_operation_) {
    EXPECT_GE(checks, 20u) << operation;
  }
}

// Most words of a bitset container lie past the largest possible volume.
TEST(HugeBlocksTest, AttackAlsoUnionsOfHugeBlocksAreWhole) {
  for (unsigned shift = 50; shift <= 62; ++shift) {
    const uint64_t granularity = uint64_t{1} << shift;
    for (const uint64_t capacity : {kMaxCapacity, uint64_t{1} << 62, granularity + 5}) {
      const VolumeGeometry geometry{capacity, granularity};
      const uint64_t count = BlockCount(capacity, granularity);
      const std::set<uint64_t> some = {0, count / 3, count / 2, count - 1};
      ASSERT_OK_AND_ASSIGN(ChangeMapBuilder builder, ChangeMapBuilder::Create(geometry));
      for (const uint64_t block : some) ASSERT_OK(builder.AddBlocks(block, block + 1));
      ASSERT_OK_AND_ASSIGN(const ChangeMap map, builder.Build());
      const std::vector<ChangeMap> maps = {map, map};
      ASSERT_OK_AND_ASSIGN(const auto cursor, MakeUnionCursor(maps));
      for (const size_t room : {size_t{1}, size_t{2}, size_t{3}, size_t{64}}) {
        ASSERT_OK(cursor->Seek(0));
        std::set<uint64_t> found;
        ExtentBatch batch(room);
        for (;;) {
          const absl::StatusOr<Step> step = cursor->Next(batch);
          ASSERT_OK(step) << shift << ", " << capacity << ": " << step.status();
          for (size_t i = 0; i < batch.size(); ++i) {
            const uint64_t end = BlockCount(batch[i].end(), granularity);
            for (uint64_t b = batch[i].offset / granularity; b < end; ++b) found.insert(b);
          }
          if (*step == Step::kComplete) break;
        }
        EXPECT_EQ(found, some) << shift << ", " << capacity;
      }
    }
  }
}

}  // namespace boundary_test
}  // namespace cbt
