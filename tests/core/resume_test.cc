// After Seek(s), every kind of cursor returns the full answer cut at s: for every s of a small
// volume, and for many s of a large one. With CBT_TEST_SCALE=8 or more, small volumes have 1 MiB
// and the large one is tried at 100,000 offsets.
#include "tests/support/resume.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/change_chain.h"
#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace resume_test {

using reference::ByteSet;
using reference::Ranges;
using test::ResumeCheck;
using test::ValueOf;
using CursorPtr = std::unique_ptr<ExtentCursor>;

bool AtScale() { return test::TestScale() >= 8; }

constexpr uint64_t kBlock = 512;

// The blocks of a volume in runs of all lengths, including the partial last block.
ByteSet SomeBlocks(uint64_t seed, uint64_t capacity) {
  std::mt19937_64 random(seed);
  ByteSet blocks((capacity + kBlock - 1) / kBlock);
  for (uint64_t b = random() % 3; b < blocks.size(); b += 1 + random() % (AtScale() ? 40 : 12)) {
    for (uint64_t n = 1 + random() % (AtScale() ? 9 : 3); n > 0 && b < blocks.size(); --n, ++b)
      blocks[b] = true;
  }
  blocks.back() = true;
  return blocks;
}

class ResumeTest : public testing::Test {
 protected:
  const uint64_t capacity_ = (AtScale() ? kMiB : 20'000) - 100;
  const VolumeGeometry geometry_{capacity_, kBlock};
  const ByteSet a_ = SomeBlocks(1, capacity_);
  const ByteSet b_ = SomeBlocks(2, capacity_);

  ByteSet Bytes(const ByteSet& blocks) const {
    ByteSet set(capacity_);
    for (size_t i = 0; i < set.size(); ++i) set[i] = blocks[i / kBlock];
    return set;
  }
  ByteSet Combined(bool (*operation)(bool, bool)) const {
    ByteSet set(capacity_);
    for (size_t i = 0; i < set.size(); ++i) set[i] = operation(a_[i / kBlock], b_[i / kBlock]);
    return set;
  }

  BitmapView Bitmap(const ByteSet& blocks, uint64_t first = 0) {
    auto& bytes = bitmaps_.emplace_back(
        std::make_unique<std::vector<uint8_t>>((first + blocks.size() + 7) / 8));
    for (uint64_t b = 0; b < blocks.size(); ++b) {
      uint8_t& byte = (*bytes)[(first + b) / 8];
      if (blocks[b]) byte = static_cast<uint8_t>(byte | 1u << (first + b) % 8);
    }
    return ValueOf(BitmapView::Create(*bytes, first, blocks.size()));
  }
  CursorPtr BitmapCursor(const ByteSet& blocks) {
    return ValueOf(
        MakeBorrowedBitmapCursor(Bitmap(blocks), {.capacity = capacity_, .granularity = kBlock}));
  }
  ChangeMap Map(const ByteSet& blocks) {
    return ValueOf(ChangeMap::FromBitmap(Bitmap(blocks), geometry_));
  }

  // From every offset, as maximal runs.
  void Check(const std::string& name, CursorPtr cursor, const ByteSet& want) {
    ResumeCheck(name, reference::RunsOf(want)).EveryOffset(*cursor);
  }

 private:
  std::vector<std::unique_ptr<std::vector<uint8_t>>> bitmaps_;
};

TEST_F(ResumeTest, Bitmaps) {
  Check("bitmap", BitmapCursor(a_), Bytes(a_));
  Check("shifted_bitmap",
        ValueOf(MakeBorrowedBitmapCursor(Bitmap(a_, 3),
                                         {.capacity = capacity_, .granularity = kBlock})),
        Bytes(a_));
  Check("two_bitmaps",
        ValueOf(MakeBorrowedBitmapCursor(Bitmap(a_), Bitmap(b_), BitmapOp::kXor,
                                         {.capacity = capacity_, .granularity = kBlock})),
        Combined([](bool a, bool b) { return a != b; }));
  ByteSet dense(a_.size());
  for (size_t i = 0; i < dense.size(); i += 2) dense[i] = true;
  Check("dense_bitmap", BitmapCursor(dense), Bytes(dense));
  Check("dense_map", MakeChangeMapCursor(Map(dense)), Bytes(dense));
}

TEST_F(ResumeTest, Lists) {
  Check("extents", test::CursorOver(reference::RunsOf(Bytes(a_)), capacity_, kBlock), Bytes(a_));
  // Nothing in it is aligned.
  test::SeededRandom random(3);
  ByteSet odd(capacity_);
  for (uint64_t i = random() % 9; i < odd.size(); i += 1 + random() % 9000) {
    for (uint64_t n = random() % 5000; n > 0 && i < odd.size(); --n, ++i) odd[i] = true;
  }
  Check("odd_extents", test::CursorOver(reference::RunsOf(odd), capacity_), odd);
}

TEST_F(ResumeTest, Memory) {
  std::vector<uint8_t> base(capacity_, uint8_t{7});
  std::vector<uint8_t> target = base;
  std::vector<uint8_t> sparse(capacity_);
  for (uint64_t b = 0; b < a_.size(); ++b) {
    if (!a_[b]) continue;
    const uint64_t at = std::min(b * kBlock + b % kBlock, capacity_ - 1);
    target[at] ^= 1;
    sparse[at] = 1;
  }
  const Ranges want = reference::RunsOf(Bytes(a_));
  const MemoryOptions options{.block_size = kBlock};
  // Reading on means comparing, so from most offsets of a large volume only a few extents are read.
  const uint64_t whole = AtScale() ? 101 : 1;
  ASSERT_OK_AND_ASSIGN(const CursorPtr delta, MakeBorrowedMemoryDeltaCursor(base, target, options));
  ResumeCheck("memory_delta", want, false, 3).EveryOffset(*delta, whole);
  ASSERT_OK_AND_ASSIGN(const CursorPtr allocation,
                       MakeBorrowedMemoryAllocationCursor(sparse, options));
  ResumeCheck("memory_allocation", want, false, 3).EveryOffset(*allocation, whole);
}

TEST_F(ResumeTest, MapsFilesAndChains) {
  Check("map", MakeChangeMapCursor(Map(a_)), Bytes(a_));
  const ByteSet either = Combined([](bool a, bool b) { return a || b; });
  const std::vector<ChangeMap> maps = {Map(a_), Map(b_)};
  Check("map_union", ValueOf(MakeUnionCursor(maps)), either);
  const test::TempDir directory;
  ASSERT_OK(WriteChangeMap(Map(a_), directory / "a.cbm"));
  Check("lazy_map_file", ValueOf(OpenChangeMapCursor(directory / "a.cbm")), Bytes(a_));
  ASSERT_OK_AND_ASSIGN(const auto chain, ChangeChain::Create(directory / "c", "vol", kBlock,
                                                             {"0", capacity_}, {.sync = false}));
  for (int i = 1; i < 4; ++i) {
    ChangeMap map = Map(i == 1 ? a_ : i == 2 ? b_ : ByteSet(a_.size()));
    map.set_identity({"vol", std::to_string(i - 1), std::to_string(i)});
    ASSERT_OK(chain->Append(map));
  }
  Check("chain", ValueOf(chain->Delta("0", "3")), either);
}

TEST_F(ResumeTest, Transforms) {
  const ByteSet bytes = Bytes(a_);
  Check("coalesce", ValueOf(Coalesce(BitmapCursor(a_))), bytes);
  const ByteSet bridged = reference::Bridged(bytes, 4000);
  ASSERT_LT(reference::RunsOf(bridged).size() + 2, reference::RunsOf(bytes).size());
  Check("bridge", ValueOf(Coalesce(BitmapCursor(a_), 4000)), bridged);
  Check("align", ValueOf(AlignOutward(BitmapCursor(a_), 1536)),
        reference::RoundedOutward(bytes, 1536));
  Check("align_odd", ValueOf(AlignOutward(BitmapCursor(a_), 1000)),
        reference::RoundedOutward(bytes, 1000));
  Check("clip", ValueOf(Clip(BitmapCursor(a_), 1001, capacity_ - 2003)),
        reference::Window(bytes, 1001, capacity_ - 2003));
  {
    ASSERT_OK_AND_ASSIGN(const CursorPtr cursor, Split(BitmapCursor(a_), 1024));
    ResumeCheck("split", reference::RunsOf(bytes), true).EveryOffset(*cursor);
  }
  for (const uint64_t size : {512u, 1000u, 4096u}) {
    ASSERT_OK_AND_ASSIGN(const CursorPtr cursor, ToBlocks(BitmapCursor(a_), size));
    ResumeCheck(absl::StrCat("blocks_of_", size), reference::BlocksOf(bytes, size))
        .EveryOffset(*cursor);
  }
  Check("stack",
        ValueOf(Coalesce(
            ValueOf(AlignOutward(
                ValueOf(Clip(ValueOf(Coalesce(BitmapCursor(a_), 700)), 999, capacity_)), 768)),
            5)),
        reference::Bridged(
            reference::RoundedOutward(
                reference::Window(reference::Bridged(bytes, 700), 999, capacity_), 768),
            5));
}

TEST_F(ResumeTest, SetOperations) {
  std::vector<CursorPtr> inputs;
  inputs.push_back(BitmapCursor(a_));
  inputs.push_back(MakeChangeMapCursor(Map(b_)));
  Check("union", ValueOf(Union(std::move(inputs))),
        Combined([](bool a, bool b) { return a || b; }));
  Check("intersection", ValueOf(Intersect(BitmapCursor(a_), MakeChangeMapCursor(Map(b_)))),
        Combined([](bool a, bool b) { return a && b; }));
  Check("subtraction", ValueOf(Subtract(BitmapCursor(a_), MakeChangeMapCursor(Map(b_)))),
        Combined([](bool a, bool b) { return a && !b; }));
}

// 16 TiB in 4 KiB blocks: 2^32 blocks, a few thousand of them changed, in containers of every kind
// and across container edges.
class LargeResumeTest : public testing::Test {
 protected:
  static constexpr uint64_t kG = 4096;
  static constexpr VolumeGeometry kGeometry = {(uint64_t{1} << 44) - 1000, kG};
  const uint64_t offsets_ = AtScale() ? 100'000 : 1500;

  static Ranges SomeRuns(uint64_t seed) {
    std::mt19937_64 random(seed);
    Ranges runs;  // in blocks
    const auto add = [&](uint64_t begin, uint64_t count) {
      if (runs.empty() || begin > runs.back().first + runs.back().second) {
        runs.emplace_back(begin, count);
      }
    };
    for (uint64_t b = random() % 5; b < 200; b += 2 + random() % 20) add(b, 1 + random() % 3);
    for (uint64_t v = 0; v < 5000; ++v) add((seed << 16) + 4 * v, 1);  // a bitset
    for (const uint64_t key : {900u, 901u, 32768u, 65534u}) {
      add((key << 16) - random() % 5, 1 + random() % 90'000);
      add(((key + 1) << 16) + 30'000, 1 + random() % 4096);
    }
    add((uint64_t{1} << 32) - 3, 3);
    return runs;
  }
  static ChangeMap Map(const Ranges& runs) {
    ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create(kGeometry));
    for (const auto& [begin, count] : runs) {
      EXPECT_OK(builder.AddBlocks(begin, begin + count));
    }
    return ValueOf(builder.Build());
  }
  static Ranges Bytes(const Ranges& runs) {
    Ranges bytes;
    for (const auto& [begin, count] : runs) {
      const uint64_t end = std::min(kGeometry.capacity, (begin + count) * kG);
      bytes.emplace_back(begin * kG, end - begin * kG);
    }
    return bytes;
  }
  // The union of two run lists, by sorting.
  static Ranges United(Ranges a, const Ranges& b, uint64_t gap = 0) {
    a.insert(a.end(), b.begin(), b.end());
    std::sort(a.begin(), a.end());
    Ranges out;
    for (const auto& [begin, count] : a) {
      if (!out.empty() && begin <= out.back().first + out.back().second + gap) {
        const uint64_t end = std::max(out.back().first + out.back().second, begin + count);
        out.back().second = end - out.back().first;
      } else {
        out.emplace_back(begin, count);
      }
    }
    return out;
  }
  void Check(const std::string& name, CursorPtr cursor, const Ranges& runs) {
    ResumeCheck(absl::StrCat("large_", name), Bytes(runs)).RandomOffsets(*cursor, offsets_);
  }
};

TEST_F(LargeResumeTest, MapsFilesChainsAndTransforms) {
  const Ranges a = SomeRuns(3);
  const Ranges b = SomeRuns(4);
  const Ranges both = United(a, b);
  const std::vector<ChangeMap> maps = {Map(a), Map(b)};
  Check("map", MakeChangeMapCursor(maps[0]), a);
  Check("map_union", ValueOf(MakeUnionCursor(maps)), both);
  const test::TempDir directory;
  ASSERT_OK(WriteChangeMap(maps[0], directory / "a.cbm"));
  Check("lazy_map_file", ValueOf(OpenChangeMapCursor(directory / "a.cbm")), a);
  ASSERT_OK_AND_ASSIGN(
      const auto chain,
      ChangeChain::Create(directory / "c", "vol", kG, {"0", kGeometry.capacity}, {.sync = false}));
  for (int i = 1; i < 3; ++i) {
    ChangeMap map = maps[static_cast<size_t>(i) - 1];
    map.set_identity({"vol", std::to_string(i - 1), std::to_string(i)});
    ASSERT_OK(chain->Append(map));
  }
  Check("chain", ValueOf(chain->Delta("0", "2")), both);
  Check("bridge", ValueOf(Coalesce(MakeChangeMapCursor(maps[0]), 10 * kG)), United(a, {}, 10));
  std::vector<CursorPtr> inputs;
  inputs.push_back(MakeChangeMapCursor(maps[0]));
  inputs.push_back(MakeChangeMapCursor(maps[1]));
  Check("union", ValueOf(Union(std::move(inputs))), both);
}

}  // namespace resume_test
}  // namespace cbt
