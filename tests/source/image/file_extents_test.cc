// Recorded and synthetic extent lists, against one bit per byte.
#include "source/image/file_extents.h"

#include <gtest/gtest.h>
#include <linux/fiemap.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "cbt/executor.h"
#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/memory_image.h"
#include "tests/support/properties.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace file_extents_test {

using absl::StatusCode;
using reference::ByteSet;
using reference::Ranges;
using test::MemoryImage;
using test::ValueOf;

// Replays a list, at most `per_call` extents at a time; another list after a given number of calls.
class ScriptedLister final : public ExtentLister {
 public:
  explicit ScriptedLister(std::vector<FileExtent> extents, size_t per_call = SIZE_MAX)
      : extents_(std::move(extents)), per_call_(per_call) {}

  void ChangeAfter(int calls, std::vector<FileExtent> extents) {
    change_after_ = calls;
    later_ = std::move(extents);
  }
  int calls() const { return calls_; }

 private:
  absl::StatusOr<size_t> List(uint64_t begin, uint64_t end,
                              std::span<FileExtent> out) const override {
    size_t count = 0;
    for (const FileExtent& extent : calls_++ < change_after_ ? extents_ : later_) {
      if (extent.logical + extent.length <= begin || extent.logical >= end) continue;
      if (count == out.size() || count == per_call_) break;
      out[count++] = extent;
    }
    return count;
  }

  const std::vector<FileExtent> extents_;
  const size_t per_call_;
  int change_after_ = INT_MAX;
  std::vector<FileExtent> later_;
  mutable int calls_ = 0;
};

// Returns the given answer to every request.
class RawLister final : public ExtentLister {
 public:
  explicit RawLister(std::vector<FileExtent> extents) : extents_(std::move(extents)) {}
  explicit RawLister(absl::Status status) : status_(std::move(status)) {}

 private:
  absl::StatusOr<size_t> List(uint64_t, uint64_t, std::span<FileExtent> out) const override {
    if (!status_.ok()) return status_;
    std::copy_n(extents_.begin(), std::min(extents_.size(), out.size()), out.begin());
    return extents_.size();
  }

  const std::vector<FileExtent> extents_;
  const absl::Status status_;
};

std::shared_ptr<ScriptedLister> Script(std::vector<FileExtent> extents,
                                       size_t per_call = SIZE_MAX) {
  return std::make_shared<ScriptedLister>(std::move(extents), per_call);
}

// A file on a model disk where each address holds a fixed byte.
struct Made {
  std::vector<uint8_t> bytes;
  std::vector<FileExtent> extents;
  // For each byte: 0 zeros, 1 an address that counts, 2 an address that does not.
  std::vector<int> kind;
  std::vector<uint64_t> address;
};

uint8_t OnDisk(uint64_t address) {
  return static_cast<uint8_t>((address * 0x9e3779b97f4a7c15U >> 50) | 1);
}

constexpr uint32_t kCounts[] = {0, FIEMAP_EXTENT_SHARED, FIEMAP_EXTENT_MERGED,
                                FIEMAP_EXTENT_SHARED | FIEMAP_EXTENT_MERGED};
constexpr uint32_t kDoesNotCount[] = {FIEMAP_EXTENT_UNKNOWN,
                                      FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC,
                                      FIEMAP_EXTENT_ENCODED,
                                      FIEMAP_EXTENT_DATA_ENCRYPTED | FIEMAP_EXTENT_ENCODED,
                                      FIEMAP_EXTENT_NOT_ALIGNED,
                                      FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED,
                                      FIEMAP_EXTENT_DATA_TAIL,
                                      0x4000,
                                      0x80000000};

// Extents of both kinds in steps of `unit`; most of them are copied from `like`.
Made Make(size_t size, size_t unit, const Made* like, std::mt19937_64& random) {
  Made made{std::vector<uint8_t>(size), {}, std::vector<int>(size), std::vector<uint64_t>(size)};
  size_t at = 0;
  size_t from_like = 0;
  while (at < size) {
    const size_t length = unit * (1 + random() % 8);
    // The last one may reach past the end of the file.
    const auto count = std::min(length, size - at);
    FileExtent extent{at, 512 + random() % 64 * 4096 * unit, length, 0};
    int kind = static_cast<int>(random() % 4);
    if (like != nullptr && random() % 4 != 0) {
      while (from_like < like->extents.size() &&
             like->extents[from_like].logical + like->extents[from_like].length <= at) {
        ++from_like;
      }
      if (from_like < like->extents.size() && like->extents[from_like].logical <= at) {
        const FileExtent& source = like->extents[from_like];
        const uint64_t skip = at - source.logical;
        extent = {at, source.physical + skip, std::min<uint64_t>(length, source.length - skip),
                  source.flags & ~uint32_t{FIEMAP_EXTENT_LAST}};
        kind = 3;
      }
    }
    if (kind == 0) extent.flags = FIEMAP_EXTENT_UNWRITTEN;
    if (kind == 1) extent.flags = kCounts[random() % std::size(kCounts)];
    if (kind == 2) extent.flags = kDoesNotCount[random() % std::size(kDoesNotCount)];
    const bool hole = like == nullptr ? kind == 3 : kind != 3 && random() % 4 == 0;
    if (!hole) {
      const bool strange = (extent.flags & ~uint32_t{0x3801}) != 0;
      const bool zeros = !strange && (extent.flags & FIEMAP_EXTENT_UNWRITTEN) != 0;
      for (size_t i = at; i < at + std::min<uint64_t>(extent.length, size - at); ++i) {
        made.kind[i] = zeros ? 0 : strange ? 2 : 1;
        made.address[i] = extent.physical + (i - at);
        if (!zeros) made.bytes[i] = OnDisk(made.address[i]);
        if (strange && random() % 4096 == 0) made.bytes[i] ^= 0x10;
      }
      made.extents.push_back(extent);
      at += std::min<size_t>(static_cast<size_t>(extent.length), count);
    } else {
      at += count;
    }
  }
  if (!made.extents.empty() && random() % 2 == 0) {
    made.extents.back().flags |= FIEMAP_EXTENT_LAST;
  }
  return made;
}

// The least that must be reported, and the most that may be.
struct Bounds {
  ByteSet least;
  ByteSet most;
};

Bounds Expected(const Made& base, const Made& target, size_t block_size, bool compare_data) {
  const size_t size = target.bytes.size();
  Bounds bounds{reference::ChangedBytes(base.bytes, target.bytes, block_size), ByteSet(size)};
  for (size_t begin = 0; begin < size; begin += block_size) {
    const size_t end = std::min(size, begin + block_size);
    bool changed = false;
    bool compare = false;
    for (size_t i = begin; i < end; ++i) {
      const int a = i < base.bytes.size() ? base.kind[i] : 0;
      const int b = target.kind[i];
      if (a == 2 || b == 2) {
        compare = true;
      } else if (a != b || (a == 1 && base.address[i] != target.address[i])) {
        (compare_data ? compare : changed) = true;
      }
    }
    const bool differs = bounds.least[begin];
    for (size_t i = begin; i < end; ++i) {
      bounds.most[i] = changed || (compare && differs);
      if (changed && !compare) bounds.least[i] = true;
    }
  }
  return bounds;
}

RC_GTEST_PROP(PlacementDeltaProperty, ReportsWhatTheListsSayFromAnyOffset, ()) {
  std::mt19937_64 random = test::AnyRandom();
  ReflinkDeltaOptions options;
  options.images.block_size = uint64_t{512} << random() % 5;
  options.compare_data = random() % 3 == 0;
  const auto block_size = static_cast<size_t>(options.images.block_size);
  const size_t unit = random() % 2 == 0 ? 512 : 1 + random() % 3000;
  const Made base = Make(random() % 60'000, unit, nullptr, random);
  const size_t size = random() % 2 == 0 ? base.bytes.size() : random() % 60'000;
  const Made target = Make(size, unit, &base, random);
  const MemoryImage base_file(base.bytes);
  const MemoryImage target_file(target.bytes);
  const Bounds bounds = Expected(base, target, block_size, options.compare_data);
  const auto base_lister = Script(base.extents, 1 + random() % 5);
  const auto target_lister = Script(target.extents, 1 + random() % 5);
  auto cursor = ValueOf(MakePlacementDeltaCursor({base_file.Open(), base_lister},
                                                 {target_file.Open(), target_lister}, options));
  RC_ASSERT(cursor->capacity() == size);
  const Ranges full = ValueOf(test::Drain(*cursor));
  const ByteSet got = reference::BytesOf(full, size);
  RC_ASSERT(reference::RunsOf(got) == full);
  RC_ASSERT(reference::RoundedOutward(got, block_size) == got);
  test::Require(test::IsSubset(bounds.least, got));
  test::Require(test::IsSubset(got, bounds.most));
  for (int i = 0; i < 10; ++i) {
    const uint64_t offset = random() % (size + 1);
    const uint64_t from = offset == size ? offset : offset / block_size * block_size;
    RC_ASSERT(ValueOf(test::DrainFrom(*cursor, offset, 1 + random() % 9)) ==
              reference::CutAt(full, from));
  }

  ByteSet written(size);
  for (size_t i = 0; i < size; ++i) written[i] = target.kind[i] != 0;
  auto allocation = ValueOf(MakePlacementAllocationCursor({target_file.Open(), target_lister},
                                                          {.block_size = block_size}));
  const Ranges allocated = reference::RunsOf(reference::RoundedOutward(written, block_size));
  RC_ASSERT(ValueOf(test::Drain(*allocation)) == allocated);
  const uint64_t offset = random() % (size + 1);
  RC_ASSERT(ValueOf(test::DrainFrom(*allocation, offset)) ==
            reference::CutAt(allocated, offset == size ? size : offset / block_size * block_size));
}

// Each flag alone on each side: only four keep the address valid.
TEST(PlacementDeltaTest, OneFlagIsEnoughToCompareBytes) {
  std::vector<uint8_t> bytes(8192, 7);
  const MemoryImage base(bytes);
  bytes[5000] = 8;
  const MemoryImage target(bytes);
  for (unsigned bit = 0; bit < 32; ++bit) {
    const uint32_t flag = uint32_t{1} << bit;
    const bool counts =
        flag == FIEMAP_EXTENT_LAST || flag == FIEMAP_EXTENT_MERGED || flag == FIEMAP_EXTENT_SHARED;
    for (int side = 0; side < 4; ++side) {
      const uint32_t a = side & 1 ? flag : 0;
      const uint32_t b = side & 2 ? flag : 0;
      // Both sides have the same address; only flags that keep it valid avoid the comparison.
      ASSERT_OK_AND_ASSIGN(
          auto cursor, MakePlacementDeltaCursor({base.Open(), Script({{0, 4096, 8192, a}})},
                                                {target.Open(), Script({{0, 4096, 8192, b}})}, {}));
      Ranges want;
      if (flag == FIEMAP_EXTENT_UNWRITTEN && side != 0) {
        if (side != 3) want = {{0, 8192}};
      } else if (!counts && side != 0) {
        want = {{4096, 4096}};
      }
      EXPECT_EQ(ValueOf(test::Drain(*cursor)), want) << std::hex << flag << " on " << side;
      // Unwritten plus another flag: not even zeros are trusted.
      if (flag != FIEMAP_EXTENT_UNWRITTEN && side != 0) {
        const uint32_t both = FIEMAP_EXTENT_UNWRITTEN;
        ASSERT_OK_AND_ASSIGN(cursor, MakePlacementDeltaCursor(
                                         {base.Open(), Script({{0, 4096, 8192, a | both}})},
                                         {target.Open(), Script({{0, 4096, 8192, b | both}})}, {}));
        EXPECT_EQ(ValueOf(test::Drain(*cursor)), counts ? Ranges{} : (Ranges{{4096, 4096}}));
      }
    }
  }
}

TEST(PlacementDeltaTest, HolesAndUnwrittenAreTheSameZeros) {
  const MemoryImage base(16384);
  const MemoryImage target(16384);
  const std::vector<FileExtent> unwritten = {{4096, 81920, 8192, FIEMAP_EXTENT_UNWRITTEN}};
  const std::vector<FileExtent> elsewhere = {{4096, 40960, 8192, FIEMAP_EXTENT_UNWRITTEN}};
  for (const auto& [a, b] :
       std::vector<std::pair<std::vector<FileExtent>, std::vector<FileExtent>>>{
           {{}, unwritten}, {unwritten, {}}, {unwritten, elsewhere}, {{}, {}}}) {
    ASSERT_OK_AND_ASSIGN(auto cursor, MakePlacementDeltaCursor({base.Open(), Script(a)},
                                                               {target.Open(), Script(b)}, {}));
    EXPECT_EQ(ValueOf(test::Drain(*cursor)), Ranges{});
  }
  // Data that became a hole, and a hole that got data, are changes.
  const std::vector<FileExtent> data = {{4096, 40960, 8192, 0}};
  for (const auto& other : {std::vector<FileExtent>{}, unwritten}) {
    ASSERT_OK_AND_ASSIGN(auto there, MakePlacementDeltaCursor({base.Open(), Script(data)},
                                                              {target.Open(), Script(other)}, {}));
    EXPECT_EQ(ValueOf(test::Drain(*there)), (Ranges{{4096, 8192}}));
    ASSERT_OK_AND_ASSIGN(auto back, MakePlacementDeltaCursor({base.Open(), Script(other)},
                                                             {target.Open(), Script(data)}, {}));
    EXPECT_EQ(ValueOf(test::Drain(*back)), (Ranges{{4096, 8192}}));
  }
}

// All compressed extents of btrfs report the address of the whole: equal addresses, different
// bytes.
TEST(PlacementDeltaTest, AddressOfAnEncodedExtentProvesNothing) {
  std::vector<uint8_t> bytes(16384, 1);
  const MemoryImage base(bytes);
  bytes[12288] = 2;
  const MemoryImage target(bytes);
  ASSERT_OK_AND_ASSIGN(
      auto cursor, MakePlacementDeltaCursor(
                       {base.Open(), Script({{0, 64102400, 16384, FIEMAP_EXTENT_ENCODED}})},
                       {target.Open(), Script({{0, 64102400, 4096, FIEMAP_EXTENT_ENCODED},
                                               {4096, 64102400, 12288, FIEMAP_EXTENT_ENCODED}})},
                       {}));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{12288, 4096}}));
}

// The base ends inside a shared block: the rest of it read as zeros before.
TEST(PlacementDeltaTest, E10BaseEndsInsideASharedExtent) {
  const std::vector<uint8_t> bytes(20'000, 3);
  const MemoryImage base(std::vector<uint8_t>(5000, 3));
  const MemoryImage target(bytes);
  ASSERT_OK_AND_ASSIGN(
      auto cursor, MakePlacementDeltaCursor({base.Open(), Script({{0, 4096, 20480, 0}})},
                                            {target.Open(), Script({{0, 4096, 20480, 0}})}, {}));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{4096, 20'000 - 4096}}));
  // In reverse, nothing past the target's end counts.
  ASSERT_OK_AND_ASSIGN(auto back,
                       MakePlacementDeltaCursor({target.Open(), Script({{0, 4096, 20480, 0}})},
                                                {base.Open(), Script({{0, 4096, 20480, 0}})}, {}));
  EXPECT_EQ(back->capacity(), 5000);
  EXPECT_EQ(ValueOf(test::Drain(*back)), Ranges{});
}

// Between the two requests the base's block moves away and the target's moves to its address.
TEST(PlacementDeltaTest, ExtentsThatMoveMeanwhileAreCompared) {
  const MemoryImage base(std::vector<uint8_t>(8192, 1));
  const MemoryImage target(std::vector<uint8_t>(8192, 2));
  const auto moves = Script({{0, 40960, 8192, 0}});
  moves->ChangeAfter(2, {{0, 81920, 8192, 0}});  // the first call only checks for support
  ASSERT_OK_AND_ASSIGN(
      auto cursor, MakePlacementDeltaCursor({base.Open(), moves},
                                            {target.Open(), Script({{0, 40960, 8192, 0}})}, {}));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{0, 8192}}));
  EXPECT_EQ(moves->calls(), 3);
}

TEST(PlacementDeltaTest, WithoutTrustInHolesTheyAreRead) {
  const MemoryImage base(8192);
  MemoryImage target(8192);
  target.Write(5000, "x");
  ReflinkDeltaOptions options;
  options.images.skip_holes = false;
  // The lists are wrong: there is data.
  ASSERT_OK_AND_ASSIGN(auto cursor, MakePlacementDeltaCursor({base.Open(), Script({})},
                                                             {target.Open(), Script({})}, options));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{4096, 4096}}));
}

// Long comparisons run on the executor; blocks larger than a buffer.
TEST(PlacementDeltaTest, ReadsLongStretchesWithTheExecutor) {
  constexpr size_t kSize = 22 * kMiB + 700;
  test::SeededRandom random(4);
  std::vector<uint8_t> bytes(kSize, 1);
  const MemoryImage base(bytes);
  std::vector<uint8_t> later = bytes;
  for (int i = 0; i < 200; ++i) later[random() % kSize] ^= 1;
  for (size_t i = 9 * kMiB; i < 15 * kMiB; ++i) later[i] = 2;
  const MemoryImage target(later);
  // [1, 11) MiB and [12, 23) MiB are unknown; the first MiB and the twelfth differ by address.
  const auto extents = [&](uint64_t where) {
    return std::vector<FileExtent>{{0, where, kMiB, 0},
                                   {kMiB, 0, 10 * kMiB, FIEMAP_EXTENT_ENCODED},
                                   {11 * kMiB, where + 11 * kMiB, kMiB, 0},
                                   {12 * kMiB, 0, 11 * kMiB, FIEMAP_EXTENT_ENCODED}};
  };
  ThreadPool pool(2);
  for (const uint64_t block_size :
       std::initializer_list<uint64_t>{512, 4096, 1 << 18, 1 << 20, 1 << 23}) {
    ByteSet set = reference::ChangedBytes(bytes, later, static_cast<size_t>(block_size));
    for (size_t i = 0; i < kMiB; ++i) set[i] = set[11 * kMiB + i] = true;
    const Ranges full =
        reference::RunsOf(reference::RoundedOutward(set, static_cast<size_t>(block_size)));
    ReflinkDeltaOptions options;
    options.images = {.block_size = block_size, .executor = &pool};
    ASSERT_OK_AND_ASSIGN(auto cursor, MakePlacementDeltaCursor(
                                          {base.Open(), Script(extents(4096))},
                                          {target.Open(), Script(extents(kSize * 2))}, options));
    ASSERT_EQ(ValueOf(test::Drain(*cursor)), full) << block_size;
    for (int i = 0; i < 8; ++i) {
      const uint64_t offset = random() % kSize;
      ASSERT_EQ(ValueOf(test::DrainFrom(*cursor, offset, 1 + random() % 100)),
                reference::CutAt(full, offset / block_size * block_size))
          << block_size << " from " << offset;
    }
  }
}

TEST(PlacementDeltaTest, E14FileThatChangesMeanwhileIsAnError) {
  for (const bool write_base : {false, true}) {
    MemoryImage base(std::vector<uint8_t>(8192, 1));
    MemoryImage target(std::vector<uint8_t>(8192, 1));
    const auto lister = Script({{0, 4096, 8192, 0}});
    ASSERT_OK_AND_ASSIGN(
        auto cursor, MakePlacementDeltaCursor({base.Open(), lister}, {target.Open(), lister}, {}));
    ASSERT_OK_AND_ASSIGN(auto allocation,
                         MakePlacementAllocationCursor({target.Open(), lister}, {}));
    usleep(20'000);  // file time stamps are coarse
    (write_base ? base : target).Write(0, "z");
    EXPECT_EQ(test::Drain(*cursor).status().code(), StatusCode::kAborted);
    EXPECT_EQ(test::Drain(*allocation).ok(), write_base);
  }
}

TEST(PlacementDeltaTest, AnswerThatContradictsItselfIsAnError) {
  const MemoryImage base(kMiB);
  const MemoryImage target(kMiB);
  const std::shared_ptr<const ExtentLister> good = Script({});
  const std::multimap<std::string, std::vector<FileExtent>> wrong = {
      {"has no length", {{0, 4096, 0, 0}}},
      {"has no length", {{0, 4096, 4096, 0}, {8192, 8192, 0, 0}}},
      {"reaches past the largest offset", {{UINT64_MAX - 10, 4096, 4096, 0}}},
      {"lies past the largest address", {{0, UINT64_MAX - 10, 4096, 0}}},
      {"begins before the end of the previous one", {{0, 4096, 8192, 0}, {4096, 65536, 4096, 0}}},
      {"begins before the end of the previous one", {{8192, 4096, 4096, 0}, {0, 65536, 4096, 0}}},
      {"is marked as the last one", {{0, 4096, 4096, FIEMAP_EXTENT_LAST}, {4096, 65536, 4096, 0}}},
      {"1025 extents at offset 0", std::vector<FileExtent>(1025, {0, 4096, 4096, 0})},
      // No progress: the next request returns the same extent again.
      {"ends before what was asked for", {{0, 4096, 4096, 0}}},
  };
  for (const auto& [why, extents] : wrong) {
    const std::shared_ptr<const ExtentLister> bad = std::make_shared<RawLister>(extents);
    for (const bool in_base : {false, true}) {
      ASSERT_OK_AND_ASSIGN(auto cursor,
                           MakePlacementDeltaCursor({base.Open(), in_base ? bad : good},
                                                    {target.Open(), in_base ? good : bad}, {}));
      const absl::Status status = test::Drain(*cursor).status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << why;
      EXPECT_NE(status.message().find(why), std::string::npos) << status;
      EXPECT_NE(status.message().find("image"), std::string::npos) << status;
    }
    ASSERT_OK_AND_ASSIGN(auto allocation, MakePlacementAllocationCursor({target.Open(), bad}, {}));
    EXPECT_EQ(test::Drain(*allocation).status().code(), StatusCode::kDataLoss) << why;
  }
}

TEST(PlacementDeltaTest, WithoutAnAnswerBytesAreCompared) {
  MemoryImage base(kMiB);
  MemoryImage target(kMiB);
  base.Write(300'000, "written, then discarded");
  target.Write(0, "x");
  const auto silent = std::make_shared<RawLister>(absl::UnimplementedError("no extents"));
  const auto empty = Script({});
  const Ranges want = {{0, 4096}, {299'008, 4096}};
  ReflinkDeltaOptions options;
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(
                MakePlacementDeltaCursor({base.Open(), silent}, {target.Open(), empty}, options)))),
            want);
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(
                MakePlacementDeltaCursor({base.Open(), empty}, {target.Open(), silent}, options)))),
            want);
  EXPECT_EQ(
      ValueOf(test::Drain(*ValueOf(MakePlacementAllocationCursor({target.Open(), silent}, {})))),
      (Ranges{{0, 4096}}));
  options.require_placement = true;
  EXPECT_EQ(MakePlacementDeltaCursor({base.Open(), silent}, {target.Open(), empty}, options)
                .status()
                .code(),
            StatusCode::kFailedPrecondition);
  // An error stays an error.
  const auto broken = std::make_shared<RawLister>(absl::UnavailableError("broken"));
  EXPECT_EQ(
      MakePlacementDeltaCursor({base.Open(), empty}, {target.Open(), broken}, {}).status().code(),
      StatusCode::kUnavailable);
}

// tmpfs has no FIEMAP and no shared blocks.
TEST(ReflinkDeltaTest, OtherFileSystemsAreRead) {
  MemoryImage base(kMiB);
  MemoryImage target(kMiB);
  target.Write(5000, "x");
  EXPECT_EQ(CheckSharedPlacement(*base.Open(), *target.Open()).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeReflinkDeltaCursor(base.Open(), target.Open())))),
            (Ranges{{4096, 4096}}));
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeReflinkDeltaCursor(base.Open(), base.Open())))),
            Ranges{});
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeExtentAllocationCursor(target.Open())))),
            (Ranges{{4096, 4096}}));
  EXPECT_EQ(MakeReflinkDeltaCursor(base.Open(), target.Open(), {.require_placement = true})
                .status()
                .code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(MakeFiemapLister(base.Open())->List(0, 4096, {}).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_FALSE(MakeReflinkDeltaCursor(nullptr, target.Open()).ok());
  EXPECT_FALSE(MakeReflinkDeltaCursor(base.Open(), nullptr).ok());
  EXPECT_FALSE(MakeExtentAllocationCursor(nullptr).ok());
  EXPECT_EQ(MakeReflinkDeltaCursor(base.Open(), target.Open(), {.images = {.block_size = 1000}})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeExtentAllocationCursor(target.Open(), {.block_size = 1000}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace file_extents_test
}  // namespace cbt
