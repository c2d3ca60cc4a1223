// The obvious use of each factory: fetch into a local variable, make a cursor, return it.
//
// Memory that is freed is overwritten, so that a cursor which still reads it gives another answer
// in every build; under the address sanitizer it is an error.
#include "cbt/lifetime.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/executor.h"
#include "cbt/memory.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"

namespace cbt {
namespace lifetime_test {

using reference::Ranges;
using test::ValueOf;
using Cursor = std::unique_ptr<ExtentCursor>;

// 2048 blocks, large enough for the allocator to hand the memory out again.
constexpr VolumeGeometry kVolume = {.capacity = uint64_t{2048} * 4096, .granularity = 4096};
constexpr uint64_t kBlocks = BlockCount(kVolume);
const Ranges kChanged = {{3 * 4096, 4096}, {2047 * 4096, 4096}};

// Block 3 and the last one.
std::vector<uint8_t> Bits() {
  std::vector<uint8_t> bits(kBlocks / 8);
  bits[0] = 1 << 3;
  bits.back() = 1 << 7;
  return bits;
}

std::vector<uint8_t> Nothing() { return std::vector<uint8_t>(kBlocks / 8); }

std::vector<uint8_t> Volume() {
  std::vector<uint8_t> bytes(kVolume.capacity);
  bytes[3 * 4096 + 17] = 1;
  bytes.back() = 1;
  return bytes;
}

ChangeMap Map() {
  const std::vector<uint8_t> bits = Bits();
  return ValueOf(ChangeMap::FromBitmap(ValueOf(BitmapView::Create(bits, 0, kBlocks)), kVolume));
}

// ---- what a plugin writes

Cursor OneBitmap() {
  std::vector<uint8_t> bits = Bits();
  const Bitmap bitmap = ValueOf(Bitmap::Create(std::move(bits), 0, kBlocks));
  return ValueOf(MakeBitmapCursor(bitmap, kVolume));
}

Cursor CopiedBitmap() {
  const std::vector<uint8_t> bits = Bits();
  return ValueOf(MakeBitmapCursor(ValueOf(Bitmap::Create(bits, 0, kBlocks)), kVolume));
}

Cursor TwoBitmaps() {
  std::vector<uint8_t> base = Nothing();
  std::vector<uint8_t> target = Bits();
  return ValueOf(MakeBitmapCursor(ValueOf(Bitmap::Create(std::move(base), 0, kBlocks)),
                                  ValueOf(Bitmap::Create(std::move(target), 0, kBlocks)),
                                  BitmapOp::kXor, kVolume));
}

Cursor SliceOfABitmap() {
  std::vector<uint8_t> bits = Bits();
  bits.insert(bits.begin(), 5, 0xff);
  return ValueOf(MakeBitmapCursor(
      ValueOf(Bitmap::Create(std::move(bits), 0, 40 + kBlocks)).Slice(40, 40 + kBlocks), kVolume));
}

// A buffer of words, as another library returns it.
Cursor ForeignBitmap() {
  auto words = std::make_shared<std::vector<uint64_t>>(kBlocks / 64);
  words->front() = 1 << 3;
  words->back() = uint64_t{1} << 63;
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(words->data()),
                                       words->size() * 8);
  return ValueOf(MakeBitmapCursor(
      ValueOf(Bitmap::Create(SharedBytes(std::move(words), bytes), 0, kBlocks)), kVolume));
}

Cursor MemoryDelta() {
  std::vector<uint8_t> base(kVolume.capacity);
  std::vector<uint8_t> target = Volume();
  return ValueOf(MakeMemoryDeltaCursor(std::move(base), std::move(target)));
}

Cursor MemoryAllocation() {
  std::vector<uint8_t> memory = Volume();
  return ValueOf(MakeMemoryAllocationCursor(std::move(memory)));
}

Cursor OneMap() {
  const ChangeMap map = Map();
  return MakeChangeMapCursor(map);
}

Cursor ViewOfAMap() {
  const ChangeMapView view = Map().view();
  return MakeBorrowedChangeMapCursor(view);
}

Cursor ViewThroughAStatus() {
  absl::StatusOr<ChangeMap> map = Map();
  const ChangeMapView view = map->view();
  map = absl::UnknownError("gone");
  return MakeBorrowedChangeMapCursor(view);
}

Cursor MapInFetchedBytes() {
  const ChangeMap map = Map();
  std::vector<uint8_t> bytes(map->portable().begin(), map->portable().end());
  return MakeChangeMapCursor(ValueOf(ChangeMap::KeepPortable64(std::move(bytes), kVolume)));
}

Cursor UnionOfMaps() {
  const std::vector<ChangeMap> maps = {Map(), ValueOf(ChangeMap::Empty(kVolume))};
  return ValueOf(MakeUnionCursor(maps));
}

Cursor UnionOfViews() {
  const ChangeMap map = Map();
  const std::vector<ChangeMapView> views = {map.view(), Map().view()};
  return ValueOf(MakeBorrowedUnionCursor(views));
}

Cursor List() {
  std::vector<Extent> extents = {{3 * 4096, 4096}, {2047 * 4096, 4096}};
  return ValueOf(MakeExtentCursor(std::move(extents), kVolume));
}

struct Factory {
  const char* name;
  Cursor (*make)();
};

class LifetimeTest : public testing::TestWithParam<Factory> {
 protected:
  // Where the allocator has the option; sanitizers have their own allocators.
  void SetUp() override { mallopt(M_PERTURB, 0xa5); }
  void TearDown() override { mallopt(M_PERTURB, 0); }
};

TEST_P(LifetimeTest, LACursorsKeepWhatTheyRead) {
  const Cursor cursor = GetParam().make();
  // Takes the memory that was freed.
  const std::vector<uint8_t> other(kBlocks / 8, 0xff);
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), kChanged);
  EXPECT_OK(cursor->Seek(0));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), kChanged);
}

INSTANTIATE_TEST_SUITE_P(
    Factories, LifetimeTest,
    testing::Values(Factory{"OneBitmap", OneBitmap}, Factory{"CopiedBitmap", CopiedBitmap},
                    Factory{"TwoBitmaps", TwoBitmaps}, Factory{"SliceOfABitmap", SliceOfABitmap},
                    Factory{"ForeignBitmap", ForeignBitmap}, Factory{"MemoryDelta", MemoryDelta},
                    Factory{"MemoryAllocation", MemoryAllocation}, Factory{"OneMap", OneMap},
                    Factory{"ViewOfAMap", ViewOfAMap},
                    Factory{"ViewThroughAStatus", ViewThroughAStatus},
                    Factory{"MapInFetchedBytes", MapInFetchedBytes},
                    Factory{"UnionOfMaps", UnionOfMaps}, Factory{"UnionOfViews", UnionOfViews},
                    Factory{"List", List}),
    [](const auto& info) { return std::string(info.param.name); });

// Parts of a parallel cursor run on other threads, and end after the cursor that asked for them.
TEST(SharedBytesTest, LAPartsOfAParallelCursorKeepTheBytes) {
  ThreadPool pool(3);
  const auto make = [&pool] {
    std::vector<uint8_t> bits = Bits();
    return ValueOf(MakeBitmapCursor(ValueOf(Bitmap::Create(std::move(bits), 0, kBlocks)), kVolume,
                                    {.executor = &pool, .parallel = 4}));
  };
  EXPECT_EQ(ValueOf(test::Drain(*make())), kChanged);
  const auto compare = [&pool] {
    return ValueOf(MakeMemoryDeltaCursor(std::vector<uint8_t>(kVolume.capacity), Volume(),
                                         {.executor = &pool, .parallel = 4}));
  };
  EXPECT_EQ(ValueOf(test::Drain(*compare())), kChanged);
}

TEST(SharedBytesTest, LABytesWithoutAnOwnerAreNone) {
  const std::vector<uint8_t> bits = Bits();
  const SharedBytes none(std::shared_ptr<const void>(), bits);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(Bitmap::Create(none, 0, kBlocks).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeMemoryDeltaCursor(none, SharedBytes(bits)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SharedBytesTest, LAMovedInIsNotCopied) {
  std::vector<uint8_t> bits = Bits();
  const uint8_t* const at = bits.data();
  const SharedBytes bytes(std::move(bits));
  EXPECT_EQ(bytes.data(), at);
  const SharedBytes copy = bytes;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copy.data(), at);
  EXPECT_EQ(bytes.owner().use_count(), 2);
  std::vector<uint32_t> words = {1, 2, 3};
  EXPECT_EQ(SharedBytes(std::move(words)).size(), 12u);
  EXPECT_EQ(SharedBytes(std::string("text")).size(), 4u);
}

// ---- forms that would dangle do not compile

using Bytes = std::vector<uint8_t>;

template <typename T>
concept BorrowsAsBitmap = requires(T&& bytes) {
  BitmapView::Create(std::forward<T>(bytes), 0, 1);
};
template <typename T>
concept BorrowsAsMap = requires(T&& bytes) {
  ChangeMapView::Create(std::forward<T>(bytes), kVolume);
};
template <typename A, typename B>
concept BorrowsAsMemory = requires(A&& a, B&& b) {
  MakeBorrowedMemoryDeltaCursor(std::forward<A>(a), std::forward<B>(b));
};
template <typename T>
concept BorrowsAsAllocation = requires(T&& bytes) {
  MakeBorrowedMemoryAllocationCursor(std::forward<T>(bytes));
};
template <typename T>
concept MakesBitmapCursor = requires(T&& bits) {
  MakeBitmapCursor(bits, kVolume);
};
template <typename T>
concept MakesTwoBitmapCursor = requires(T&& bits) {
  MakeBitmapCursor(bits, bits, BitmapOp::kXor, kVolume);
};
template <typename T>
concept MakesMapCursor = requires(T&& map) {
  MakeChangeMapCursor(map);
};
template <typename T>
concept MakesMemoryCursor = requires(T&& bytes) {
  MakeMemoryAllocationCursor(bytes);
};
template <typename T>
concept HasView = requires(T&& bits) {
  std::forward<T>(bits).view();
};

static_assert(BorrowsAsBitmap<Bytes&> && BorrowsAsBitmap<const Bytes&>);
static_assert(BorrowsAsBitmap<std::span<const uint8_t>>);
static_assert(!BorrowsAsBitmap<Bytes> && !BorrowsAsBitmap<const Bytes>);
static_assert(BorrowsAsMap<Bytes&> && !BorrowsAsMap<Bytes>);
static_assert(BorrowsAsMemory<Bytes&, Bytes&> && !BorrowsAsMemory<Bytes, Bytes>);
static_assert(!BorrowsAsMemory<Bytes&, Bytes> && !BorrowsAsMemory<Bytes, Bytes&>);
static_assert(BorrowsAsAllocation<Bytes&> && !BorrowsAsAllocation<Bytes>);
static_assert(MakesBitmapCursor<const Bitmap&> && MakesBitmapCursor<Bitmap>);
static_assert(!MakesBitmapCursor<BitmapView> && !MakesBitmapCursor<const BitmapView&>);
static_assert(MakesTwoBitmapCursor<const Bitmap&> && !MakesTwoBitmapCursor<const BitmapView&>);
static_assert(MakesMapCursor<const ChangeMap&> && !MakesMapCursor<const ChangeMapView&>);
static_assert(MakesMemoryCursor<Bytes> && !MakesMemoryCursor<std::span<const uint8_t>>);
static_assert(HasView<const Bitmap&> && !HasView<Bitmap>);
static_assert(std::same_as<decltype(std::declval<ChangeMap>().view()), ChangeMapView>);
static_assert(!std::is_constructible_v<SharedBytes, std::nullptr_t, std::span<const uint8_t>>);

}  // namespace lifetime_test
}  // namespace cbt
