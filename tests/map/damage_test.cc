// Once valid bytes with a flipped bit, another length, swapped or stale blocks. Files on disk carry
// checksums (change maps, chain manifests, region logs), so all of these must be refused. The
// exported portable form carries none: there, accepted flips are counted, and each must at least be
// a valid bitmap.
#include "tests/map/damage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/directory.h"
#include "base/manifest_bytes.h"
#include "cbt/change_map_file.h"
#include "cbt/units.h"
#include "map/chain/chain_manifest.h"
#include "map/tracker/region_log.h"
#include "map/tracker/tracker_manifest.h"
#include "tests/map/maps.h"
#include "tests/reference/portable_roaring.h"
#include "tests/support/cursors.h"
#include "tests/support/figures.h"
#include "tests/support/files.h"
#include "tests/support/memory_file.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace damage_test {

using test::Blocks;
using test::Bytes;
using test::DoubleFlips;
using test::Flip;
using test::Judge;
using test::Lengths;
using test::SingleFlips;
using test::Splices;
using test::Swaps;
using test::Tally;
using test::ValueOf;
using test::Verdict;

constexpr VolumeGeometry kVolume = {uint64_t{1} << 46, 4096};

// A little over 64 KiB, so that the payload has two pieces. All container kinds, on both sides of
// 2^16 and 2^32 blocks. Maps of different generations share one layout.
ChangeMap LargeMap(uint64_t generation) {
  std::mt19937_64 random(7);
  std::mt19937_64 other(generation);
  Blocks blocks;
  const auto bitset = [&](uint64_t key) {
    for (uint64_t v = 0; v < 65536; v += 2) blocks.push_back((key << 16) + v + other() % 2);
  };
  const auto array = [&](uint64_t key, uint64_t members) {
    for (uint64_t i = 0; i < members; ++i) blocks.push_back((key << 16) + 16 * i + other() % 15);
  };
  const auto runs = [&](uint64_t key, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t begin = (key << 16) + 60 * i + other() % 8;
      for (uint64_t n = 0; n < 30 + random() % 20; ++n) blocks.push_back(begin + n);
    }
  };
  for (const uint64_t key : {0u, 1u, 9u}) bitset(key);
  array(100, 4096);
  runs(101, 1000);
  for (const uint64_t key : {65534u, 65535u}) bitset(key);
  array(65536, 4095);
  runs(65537, 900);
  array(65539, 400);
  ChangeMap map = test::MapOf(blocks, kVolume);
  map.set_identity({"vol", "monday", "tuesday"});
  return map;
}

Verdict JudgeMap(const Bytes& bytes, const ChangeMap& sound) {
  const absl::StatusOr<ChangeMap> map = DecodeChangeMap(bytes, "x.cbm");
  if (!map.ok()) return Verdict::kRefused;
  return map->view() == sound.view() && map->identity() == sound.identity() ? Verdict::kSame
                                                                            : Verdict::kOther;
}

uint64_t Scale() { return static_cast<uint64_t>(test::TestScale()); }
// ctest flips about one bit per byte; CBT_TEST_SCALE=8 or more flips every bit.
size_t FlipStep() { return Scale() >= 8 ? 1 : 9; }

class MapDamageTest : public testing::Test {
 protected:
  const ChangeMap map_ = LargeMap(1);
  const Bytes bytes_ = ValueOf(EncodeChangeMap(map_));
  const Judge judge_ = [this](const Bytes& bytes) { return JudgeMap(bytes, map_); };

  void SetUp() override {
    ASSERT_GT(bytes_.size(), 65536u + 200);
    ASSERT_EQ(judge_(bytes_), Verdict::kSame);
  }
};

TEST_F(MapDamageTest, EveryFlippedBitOfAMapIsFound) {
  test::PrintFigure("r7_map_bytes", bytes_.size());
  SingleFlips(bytes_, FlipStep(), judge_).Print("r7_map_flips");
}

TEST_F(MapDamageTest, TwoFlippedBitsOfAMapAreFound) {
  DoubleFlips(bytes_, 20'000 * Scale(), judge_).Print("r7_map_double_flips");
}

// Chains and streams read this way: nothing past the damage may be reported, and no end.
TEST_F(MapDamageTest, FlippedBitsAreFoundByALazyCursor) {
  const test::MemoryFile file;
  test::SeededRandom random(4);
  Tally tally;
  for (uint64_t i = 0; i < 400 * Scale(); ++i) {
    Bytes bytes = bytes_;
    const size_t bit = random() % (bytes.size() * 8);
    Flip(bytes, bit);
    file.Write(bytes);
    const absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = OpenChangeMapCursor(file.path());
    const bool found = !cursor.ok() || !test::Drain(**cursor, 1000).ok();
    tally.Add(found ? Verdict::kRefused : Verdict::kOther,
              [&] { return absl::StrCat("bit ", bit); });
  }
  tally.Print("r7_lazy_map_flips");
}

TEST_F(MapDamageTest, EveryOtherLengthOfAMapIsFound) {
  Lengths(bytes_, judge_).Print("r8_map_lengths");
}

TEST_F(MapDamageTest, BlocksThatChangedPlacesAreFound) {
  Tally all;
  for (const size_t block : {size_t{16}, size_t{512}, size_t{4096}}) {
    // 16-byte blocks have 17 million pairs.
    const size_t step = block == 16 ? 1 + 20'000'000 / (4000 * Scale()) : Scale() >= 8 ? 1 : 5;
    const Tally tally = Swaps(bytes_, block, step, judge_);
    all.tried += tally.tried;
    all.missed += tally.missed;
  }
  all.Print("r8_map_swaps");
}

TEST_F(MapDamageTest, OldBlocksBetweenNewOnesAreFound) {
  ASSERT_OK_AND_ASSIGN(const Bytes before, EncodeChangeMap(LargeMap(2)));
  ASSERT_EQ(before.size(), bytes_.size());
  ASSERT_NE(before, bytes_);
  Tally all;
  for (const size_t block : {size_t{512}, size_t{4096}, size_t{65536}}) {
    const Tally tally = Splices(bytes_, before, block, 1000 * Scale(), judge_);
    all.tried += tally.tried;
    all.missed += tally.missed;
  }
  all.Print("r8_map_splices");
}

// There is no checksum: this counts what validation alone finds and compares the rest with the
// oracle.
TEST_F(MapDamageTest, AFlipInExportedBytesMakesASoundBitmapOrNone) {
  const Blocks blocks = {1, 5, 6, 9, 65536, 65537, 65538, 65539, 65540, 70000};
  const ChangeMap map = test::MapOf(blocks, kVolume);
  Bytes bytes(map->portable().begin(), map->portable().end());
  uint64_t refused = 0;
  uint64_t other = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Flip(bytes, bit);
    const absl::StatusOr<ChangeMapView> view = ChangeMapView::Create(bytes, kVolume);
    const auto want = reference::PortableRoaring::Decode(bytes);
    if (view.ok()) {
      ++other;
      ASSERT_TRUE(want.has_value()) << "bit " << bit << ": the oracle refuses it";
      EXPECT_EQ(test::BlocksOf(*view), *want) << "bit " << bit;
    } else {
      ++refused;
    }
    Flip(bytes, bit);
  }
  EXPECT_GT(refused, 0u);
  EXPECT_GT(other, 0u);
  test::PrintFigure("r7_exported_flips_refused", refused);
  test::PrintFigure("r7_exported_flips_that_are_another_bitmap", other);
}

// ---- chain manifests

ChainManifest SomeManifest(uint64_t generation) {
  ChainManifest manifest;
  manifest.volume = "vol";
  manifest.granularity = 4096;
  manifest.next_slot = 40;
  manifest.next_file = 100 + generation;
  for (uint64_t slot = 0; slot < 40; ++slot) {
    manifest.entries.push_back({absl::StrCat("snapshot ", 1000 + slot), slot, kGiB, kGiB,
                                slot == 0 ? ChainFile{} : ChainFile{slot, slot * generation}});
  }
  for (uint64_t index = 1; index < 20; ++index) {
    manifest.nodes[{1, index}] = {50 + index, generation};
  }
  return manifest;
}

TEST(ManifestDamageTest, FlipsLengthsSwapsAndSplicesAreFound) {
  const Bytes bytes = EncodeManifest(SomeManifest(1));
  const Bytes before = EncodeManifest(SomeManifest(2));
  ASSERT_EQ(bytes.size(), before.size());
  const Judge judge = [&bytes](const Bytes& changed) {
    const absl::StatusOr<ChainManifest> manifest = DecodeManifest(changed, "CHAIN");
    if (!manifest.ok()) return Verdict::kRefused;
    return EncodeManifest(*manifest) == bytes ? Verdict::kSame : Verdict::kOther;
  };
  ASSERT_EQ(judge(bytes), Verdict::kSame);
  SingleFlips(bytes, 1, judge).Print("r7_manifest_flips");
  DoubleFlips(bytes, 20'000 * Scale(), judge).Print("r7_manifest_double_flips");
  Lengths(bytes, judge).Print("r8_manifest_lengths");
  Swaps(bytes, 64, 1, judge).Print("r8_manifest_swaps");
  Splices(bytes, before, 64, 1000, judge).Print("r8_manifest_splices");
}

// A number at its limit is accepted, one above is refused, whatever the checksum says.
TEST(ManifestDamageTest, NumbersPastTheirLimitsAreRefused) {
  const auto code_of = [](const std::function<void(ChainManifest&)>& change) {
    ChainManifest manifest = SomeManifest(1);
    change(manifest);
    return DecodeManifest(EncodeManifest(manifest), "CHAIN").status().code();
  };
  const uint64_t files = SomeManifest(1).next_file;
  const uint64_t slots = SomeManifest(1).next_slot;
  const auto last = [](ChainManifest& manifest) -> ChainEntry& { return manifest.entries.back(); };
  struct Case {
    const char* what;
    uint64_t most;
    std::function<void(ChainManifest&, uint64_t)> put;
  };
  const std::vector<Case> cases = {
      {"file", files - 1, [&](auto& m, uint64_t n) { last(m).file.number = n; }},
      {"file of a union", files - 1,
       [](auto& m, uint64_t n) { m.nodes.begin()->second.number = n; }},
      {"slot", slots - 1, [&](auto& m, uint64_t n) { last(m).slot = n; }},
      {"capacity", kMaxCapacity, [&](auto& m, uint64_t n) { last(m).capacity = n; }},
      {"floor", uint64_t{1} << 30, [&](auto& m, uint64_t n) { last(m).floor = n; }},
      {"first file", 0, [](auto& m, uint64_t n) { m.entries.front().file.number = n; }},
      {"slots", uint64_t{1} << 60, [](auto& m, uint64_t n) { m.next_slot = n; }},
      {"granularity", kMaxGranularity, [](auto& m, uint64_t n) { m.granularity = n; }},
      {"level", kMaxChainLevel,
       [](auto& m, uint64_t n) {
         m.nodes[{static_cast<unsigned>(n), 0}] = {50, 1};
       }},
  };
  for (const Case& each : cases) {
    const auto at = [&](uint64_t n) {
      return code_of([&](ChainManifest& manifest) { each.put(manifest, n); });
    };
    EXPECT_EQ(at(each.most), absl::StatusCode::kOk) << each.what;
    EXPECT_EQ(at(each.most + 1), absl::StatusCode::kDataLoss) << each.what;
  }
  const auto refused = [&](const std::function<void(ChainManifest&)>& change) {
    return code_of(change) == absl::StatusCode::kDataLoss;
  };
  EXPECT_TRUE(refused([&](auto& m) { last(m).file.number = 0; }));
  EXPECT_TRUE(refused([](auto& m) { m.nodes.begin()->second.number = 0; }));
  EXPECT_TRUE(refused([](auto& m) { m.nodes[{0, 0}] = {50, 1}; }));
  EXPECT_TRUE(refused([](auto& m) { m.granularity = 0; }));
  EXPECT_TRUE(refused([&](auto& m) { last(m).slot = m.entries[m.entries.size() - 2].slot; }));
  EXPECT_TRUE(refused([&](auto& m) { last(m).id.clear(); }));
  EXPECT_TRUE(refused([](auto& m) { m.entries.clear(); }));
}

// Truncated at every byte, in a separate allocation so that sanitizers catch an over-read.
TEST(ManifestDamageTest, AnyShorterOneWithARightChecksumIsRefused) {
  const Bytes whole = EncodeManifest(SomeManifest(1));
  const size_t body = whole.size() - sizeof(uint64_t);
  for (size_t size = 0; size <= body; ++size) {
    Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const uint64_t checksum = Checksum(cut);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&checksum);
    cut.insert(cut.end(), bytes, bytes + sizeof(checksum));
    cut.shrink_to_fit();
    ASSERT_EQ(DecodeManifest(cut, "CHAIN").ok(), size == body) << size;
  }
}

TEST(ManifestDamageTest, AUnionPastTheLastSnapshotIsRefused) {
  for (const uint64_t index : {uint64_t{20}, uint64_t{21}, uint64_t{1} << 40}) {
    ChainManifest manifest = SomeManifest(1);
    manifest.nodes[{1, index}] = {49, 1};
    const absl::StatusOr<ChainManifest> read = DecodeManifest(EncodeManifest(manifest), "CHAIN");
    EXPECT_EQ(read.ok(), index == 20) << index << ": " << read.status();
  }
}

// ---- tracker logs

class LogDamageTest : public testing::Test {
 protected:
  LogDamageTest() {
    const RegionLogHeader header = {7, {kGiB, 4096}, 64 * kMiB, 3, 5, "vol", "monday"};
    const auto log =
        ValueOf(RegionLog::Create(ValueOf(Directory::Open(directory_.path())), "log", header));
    for (const uint64_t region : regions_) EXPECT_OK(log->Add(region, region));
    bytes_ = test::ReadFile<Bytes>(directory_ / "log");
  }

  absl::StatusOr<RegionLog::Contents> Read(const Bytes& bytes) const {
    file_.Write(bytes);
    const std::filesystem::path path = file_.path();
    return RegionLog::Read(ValueOf(Directory::Open(path.parent_path())), path.filename());
  }

  // Refused means an error, or that all regions count as written.
  Verdict JudgeLog(const Bytes& bytes) const {
    const absl::StatusOr<RegionLog::Contents> contents = Read(bytes);
    if (!contents.ok() || !contents->sound) return Verdict::kRefused;
    return contents->regions == regions_ ? Verdict::kSame : Verdict::kOther;
  }

  const test::TempDir directory_;
  const test::MemoryFile file_;
  const std::vector<uint64_t> regions_ = {3, 0, 15, 7};
  Bytes bytes_;
  const Judge judge_ = [this](const Bytes& bytes) { return JudgeLog(bytes); };
};

TEST_F(LogDamageTest, FlipsAndLengthsAreFound) {
  ASSERT_EQ(bytes_.size(), 12288u + 16 * 16);
  ASSERT_EQ(judge_(bytes_), Verdict::kSame);
  Tally flips;
  // At full scale: every bit of the fields, the records and the zeros in between.
  const size_t step = Scale() >= 8 ? 1 : 61;
  Bytes bytes = bytes_;
  for (size_t bit = 0; bit < bytes.size() * 8;
       bit += bit < 100 * 8 || bit >= (12288 - 16) * 8 ? 1 : step) {
    Flip(bytes, bit);
    flips.Add(judge_(bytes), [&] { return absl::StrCat("bit ", bit); });
    Flip(bytes, bit);
  }
  flips.Print("r7_log_flips");
  DoubleFlips(bytes_, 400 * Scale(), judge_).Print("r7_log_double_flips");
  if (Scale() >= 8) {
    Lengths(bytes_, judge_).Print("r8_log_lengths");
    return;
  }
  Tally lengths;
  for (size_t size = 0; size < bytes_.size(); size += size < 12200 ? 97 : 1) {
    bytes.assign(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size));
    lengths.Add(judge_(bytes), [&] { return absl::StrCat(size, " bytes"); });
  }
  for (size_t more = 1; more <= 64; ++more) {
    bytes = bytes_;
    bytes.resize(bytes.size() + more);
    lengths.Add(judge_(bytes), [&] { return absl::StrCat(more, " more bytes"); });
  }
  lengths.Print("r8_log_lengths");
}

// Records in another order or position, or of another log.
TEST_F(LogDamageTest, RecordsThatAreNotInTheirPlaceAreFound) {
  Tally tally;
  const RegionLogHeader header = {7, {kGiB, 4096}, 64 * kMiB, 3, 4, "vol", "monday"};
  ASSERT_OK_AND_ASSIGN(
      const auto log,
      RegionLog::Create(ValueOf(Directory::Open(directory_.path())), "other", header));
  for (const uint64_t region : {4u, 5u, 6u, 8u}) ASSERT_OK(log->Add(region, region));
  const auto other = test::ReadFile<Bytes>(directory_ / "other");
  const auto at = [](size_t record) { return static_cast<std::ptrdiff_t>(12288 + 16 * record); };
  for (size_t a = 0; a < 8; ++a) {
    for (size_t b = 0; b < 8; ++b) {
      Bytes moved = bytes_;
      std::copy_n(bytes_.begin() + at(a), 16, moved.begin() + at(b));
      if (moved != bytes_) {
        tally.Add(judge_(moved), [&] { return absl::StrCat("record ", a, " over ", b); });
      }
      Bytes foreign = bytes_;
      std::copy_n(other.begin() + at(a), 16, foreign.begin() + at(b));
      if (a < 4) tally.Add(judge_(foreign), [&] { return absl::StrCat("foreign at ", b); });
    }
  }
  tally.Print("r8_log_misplaced_records");
}

// Zeros that a lost sector leaves are not free slots, whether it held one record or many.
TEST_F(LogDamageTest, AttackCZerosAreNoEmptyPlaces) {
  Tally tally;
  for (const size_t size :
       {size_t{8}, size_t{16}, size_t{32}, size_t{128}, size_t{512}, size_t{4096}}) {
    for (size_t at = 0; at < bytes_.size(); at += size) {
      Bytes zeroed = bytes_;
      const size_t end = std::min(at + size, zeroed.size());
      std::fill(zeroed.begin() + static_cast<std::ptrdiff_t>(at),
                zeroed.begin() + static_cast<std::ptrdiff_t>(end), uint8_t{0});
      // The header ends in unused zeros.
      if (zeroed != bytes_)
        tally.Add(judge_(zeroed), [&] { return absl::StrCat(size, " at ", at); });
    }
  }
  tally.Print("r8_log_zeros");
}

// 2^60 regions of 16 bytes wrap to 0 bytes in 64 bits.
TEST_F(LogDamageTest, AttackAlsoARegionForEachByteOfAHugeVolumeIsRefused) {
  for (const uint64_t capacity : {kEiB, kEiB + 16, uint64_t{1} << 62}) {
    Bytes bytes = bytes_;
    const auto store = [&bytes](size_t at, uint64_t number) {
      std::memcpy(bytes.data() + at, &number, sizeof(number));
    };
    store(16, capacity);
    store(32, 1);
    store(12280, Checksum({bytes.data(), 12280}));
    bytes.resize(12288);
    EXPECT_EQ(Read(bytes).status().code(), absl::StatusCode::kDataLoss);
  }
}

// ---- tracker manifests

TrackerManifest SomeTracker() {
  TrackerManifest manifest;
  manifest.geometry = {1000 * 4096, 4096};
  manifest.volume = "vol";
  manifest.next_epoch = 9;
  manifest.next_file = 40;
  manifest.epochs = {{7, "monday", false, {31, 0x1234}, {{30, 5}, {33, 6}}},
                     {8, "tuesday", true, {}, {{35, 7}}}};
  manifest.late = LateWrites{{12, 77}, 7};
  return manifest;
}

TEST(TrackerManifestDamageTest, FlipsAndLengthsAreFound) {
  const Bytes bytes = EncodeManifest(SomeTracker());
  const Judge judge = [&](const Bytes& damaged) {
    const absl::StatusOr<TrackerManifest> read = DecodeTrackerManifest(damaged, "TRACKER");
    if (!read.ok()) return Verdict::kRefused;
    return EncodeManifest(*read) == bytes ? Verdict::kSame : Verdict::kOther;
  };
  ASSERT_EQ(judge(bytes), Verdict::kSame);
  SingleFlips(bytes, 1, judge).Print("r7_tracker_flips");
  Lengths(bytes, judge).Print("r8_tracker_lengths");
}

TEST(TrackerManifestDamageTest, FieldsOutOfRangeAreRefused) {
  const auto refused = [](const auto& change) {
    TrackerManifest manifest = SomeTracker();
    change(manifest);
    return absl::IsDataLoss(DecodeTrackerManifest(EncodeManifest(manifest), "TRACKER").status());
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& m) { m.geometry.granularity = 0; }));
  EXPECT_TRUE(refused([](auto& m) { m.geometry.capacity = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs.clear(); }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs.push_back(m.epochs[1]); }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs.push_back({9, "x", true, {}, {{36, 1}}}); }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[1].number = 7; }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[1].number = 9; }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[0].logs.clear(); }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[1].logs.clear(); }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[1].logs[0].number = 0; }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[1].logs[0].number = 40; }));
  EXPECT_FALSE(refused([](auto& m) { m.epochs[1].logs[0].number = 39; }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[0].logs[1].number = 30; }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[0].map.number = 40; }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[0].map.number = 0; }));
  EXPECT_TRUE(refused([](auto& m) { m.late->map.number = 0; }));
  EXPECT_TRUE(refused([](auto& m) { m.late->until = 6; }));
  EXPECT_TRUE(refused([](auto& m) { m.epochs[0].base = std::string(5000, 'x'); }));
  EXPECT_TRUE(refused([](auto& m) { m.volume = "\xff"; }));
  EXPECT_FALSE(refused([](auto& m) { m.opening = true; }));
  EXPECT_TRUE(refused([](auto& m) {
    m.opening = true;
    m.late.reset();
    m.epochs.pop_back();
  }));
  // Without a log, only a closed epoch is known, and only by its map.
  EXPECT_FALSE(refused([](auto& m) {
    m.closed = true;
    m.epochs[0].logs.clear();
  }));
  EXPECT_TRUE(refused([](auto& m) {
    m.closed = true;
    m.epochs[1].logs.clear();
  }));
}

}  // namespace damage_test
}  // namespace cbt
