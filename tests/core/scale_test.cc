// The extremes: the largest volume, more blocks than 32 bits can count, more extents than should be
// held in memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "cbt/wire/message.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"

namespace cbt {
namespace scale_test {

using test::ValueOf;

using reference::Ranges;

[[maybe_unused]] long PeakKiB() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Scale, E7TheLastBlocksBelowEightExbibytes) {
  for (const uint64_t block : {uint64_t{512}, uint64_t{4096}, 64 * kMiB}) {
    const uint64_t capacity = kMaxCapacity - block + 1;  // 8 EiB minus one block
    const uint64_t last = capacity - block;
    const std::vector<Extent> extents = {
        {0, block}, {capacity / 2 / block * block, block}, {last, block}};
    Ranges expected;
    for (const Extent& extent : extents) expected.emplace_back(extent.offset, extent.length);

    const ChangeMap map = [&] {
      ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create({capacity, block}));
      for (const Extent& extent : extents) EXPECT_OK(builder.Add(extent));
      return ValueOf(builder.Build());
    }();
    EXPECT_EQ(test::RangesOf(map), expected);
    EXPECT_TRUE(map->Contains(last / block));
    EXPECT_EQ(map->changed_bytes(), 3 * block);
    // There is nothing past the end, and nothing wraps around.
    ASSERT_OK_AND_ASSIGN(ChangeMapBuilder builder, ChangeMapBuilder::Create({capacity, block}));
    EXPECT_FALSE(builder.Add({last, block + 1}).ok());
    EXPECT_FALSE(builder.Add({~uint64_t{0} - 1, 2}).ok());

    const auto cursor = [&] {
      return ValueOf(MakeExtentCursor(extents, {.capacity = capacity, .granularity = block}));
    };
    EXPECT_EQ(ValueOf(test::Drain(*cursor())), expected);
    EXPECT_EQ(ValueOf(test::Drain(*ValueOf(ToBlocks(cursor(), block)))), expected);
    EXPECT_EQ(ValueOf(test::Drain(*ValueOf(AlignOutward(cursor(), block)))), expected);
    EXPECT_EQ(ValueOf(test::Drain(*ValueOf(Coalesce(cursor(), block)))), expected);
    const auto wide = AlignOutward(cursor(), uint64_t{1} << 62);
    ASSERT_OK(wide);
    EXPECT_EQ(ValueOf(test::Drain(**wide)), (Ranges{{0, capacity}}));
    const auto sought = cursor();
    ASSERT_OK(sought->Seek(last));
    EXPECT_EQ(ValueOf(test::Drain(*sought)), (Ranges{{last, block}}));
    ASSERT_OK(sought->Seek(capacity));
    EXPECT_EQ(ValueOf(test::Drain(*sought)), Ranges{});
    EXPECT_FALSE(sought->Seek(capacity + 1).ok());
  }
}

TEST(Scale, TheWholeLargestVolumeIsOneExtent) {
  ASSERT_OK_AND_ASSIGN(const ChangeMap full, ChangeMap::Full({kMaxCapacity, kTiB}));
  EXPECT_EQ(test::RangesOf(full), (Ranges{{0, kMaxCapacity}}));
  EXPECT_EQ(full->changed_bytes(), kMaxCapacity);
}

// Untouched pages take no memory, so 2 GiB of bits cost only what is set in them.
TEST(Scale, TwoToThe34DenseBlocks) {
  constexpr uint64_t kBits = uint64_t{1} << 34;
  constexpr uint64_t kBytes = kBits / 8;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for 2 GiB";
  auto* const bytes = static_cast<uint8_t*>(memory);
  Ranges expected;
  for (const uint64_t bit : {uint64_t{0}, (uint64_t{1} << 32) - 1, uint64_t{1} << 32,
                             (uint64_t{1} << 33) + 12345, kBits - 1}) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] | 1u << bit % 8);
    if (!expected.empty() && expected.back().first + expected.back().second == bit * 4096) {
      expected.back().second += 4096;
    } else {
      expected.emplace_back(bit * 4096, 4096);
    }
  }
  ASSERT_OK_AND_ASSIGN(const BitmapView view, BitmapView::Create({bytes, kBytes}, 0, kBits));
  ASSERT_OK_AND_ASSIGN(const auto cursor, MakeBorrowedBitmapCursor(view, {.capacity = kBits * 4096,
                                                                          .granularity = 4096}));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), expected);
  ASSERT_OK(cursor->Seek((kBits - 1) * 4096 + 1));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{(kBits - 1) * 4096, 4096}}));
  ::munmap(memory, kBytes);
}

// Every second block of a volume, computed on the fly.
class Alternating final : public ExtentCursor {
 public:
  explicit Alternating(uint64_t capacity)
      : ExtentCursor({.capacity = capacity, .granularity = 4096}) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    next_ = AlignUp(offset, 8192);
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    while (!batch.full() && next_ < capacity()) {
      batch.push_back({next_, 4096});
      next_ += 8192;
    }
    return std::min(next_, capacity());
  }
  uint64_t next_ = 0;
};

TEST(Scale, AHundredMillionExtentsInBoundedMemory) {
#ifdef CBT_TEST_SANITIZED
  constexpr uint64_t kExtents = 1'000'000;
#else
  constexpr uint64_t kExtents = 100'000'000;
#endif
  constexpr uint64_t kCapacity = kExtents * 8192;
  [[maybe_unused]] const long before = PeakKiB();
  std::vector<std::unique_ptr<ExtentCursor>> inputs;
  inputs.push_back(std::make_unique<Alternating>(kCapacity));
  inputs.push_back(ValueOf(Clip(std::make_unique<Alternating>(kCapacity), 0, kCapacity / 2)));
  ASSERT_OK_AND_ASSIGN(const auto cursor, ToBlocks(ValueOf(Union(std::move(inputs))), 4096));
  std::vector<uint8_t> message(ExtentBatch::kDefaultCapacity * kMaxTupleBytes);
  uint64_t extents = 0;
  uint64_t bytes = 0;
  const absl::Status status = ForEachBatch(*cursor, [&](const ExtentBatch& batch) {
    extents += batch.size();
    bytes += EncodeTuples(batch.offsets(), batch.lengths(), message).bytes;
    return absl::OkStatus();
  });
  ASSERT_OK(status);
  EXPECT_EQ(extents, kExtents);
  EXPECT_GT(bytes, kExtents * 8);
#ifndef CBT_TEST_SANITIZED
  EXPECT_LT(PeakKiB() - before, 8 << 10);
#endif
}

}  // namespace scale_test
}  // namespace cbt
