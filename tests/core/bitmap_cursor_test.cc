#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "cbt/batch.h"
#include "cbt/bitmap.h"
#include "cbt/transform.h"
#include "core/bitmap_pair.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace bitmap_cursor_test {

using test::ValueOf;

using reference::Ranges;

// Packs `bits` starting at bit `first_bit`. All surrounding bits are noise that the cursor must
// ignore.
std::vector<uint8_t> Pack(const std::vector<bool>& bits, size_t first_bit, uint64_t noise_seed,
                          BitmapFormat format = {}) {
  std::mt19937_64 random(noise_seed);
  const size_t word = format.reversed_word_bytes;
  std::vector<uint8_t> bytes((first_bit + bits.size() + 8 * word - 1) / (8 * word) * word);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t i = 0; i < bits.size(); ++i) {
    const size_t at = first_bit + i;
    const bool reverse = format.order == BitmapFormat::BitOrder::kMostSignificantFirst;
    const size_t place = reverse ? 7 - at % 8 : at % 8;
    const unsigned bit = bits[i] != format.inverted ? 1 : 0;
    const size_t in_word = at / 8 % word;
    uint8_t& byte = bytes[at / 8 - in_word + (word - 1 - in_word)];
    byte = static_cast<uint8_t>((byte & ~(1u << place)) | bit << place);
  }
  return bytes;
}

// The runs of set blocks as extents; the last one is cut at the capacity.
Ranges ExtentsOf(const std::vector<bool>& bits, uint64_t capacity, uint64_t granularity) {
  Ranges extents;
  for (const auto& [block, count] : reference::RunsOf(bits)) {
    const uint64_t begin = block * granularity;
    extents.emplace_back(begin, std::min(count * granularity, capacity - begin));
  }
  return extents;
}

std::vector<bool> Clustered(size_t count, std::mt19937_64& random) {
  std::vector<bool> bits(count);
  bool value = false;
  for (size_t i = 0; i < count; ++i) {
    if (random() % 40 == 0) value = !value;
    bits[i] = random() % 50 == 0 ? !value : value;
  }
  return bits;
}

TEST(BitmapViewTest, RefusesBytesThatAreTooShort) {
  const uint8_t bytes[2] = {};
  EXPECT_OK(BitmapView::Create(bytes, 0, 16));
  EXPECT_OK(BitmapView::Create(bytes, 16, 0));
  EXPECT_FALSE(BitmapView::Create(bytes, 0, 17).ok());
  EXPECT_FALSE(BitmapView::Create(bytes, 1, 16).ok());
  EXPECT_FALSE(BitmapView::Create(bytes, 17, 0).ok());
  EXPECT_FALSE(BitmapView::Create(bytes, 8, UINT64_MAX).ok());
}

TEST(BitmapCursorTest, RefusesABitmapThatDoesNotCoverTheVolume) {
  const uint8_t bytes[8] = {};
  ASSERT_OK_AND_ASSIGN(const auto view, BitmapView::Create(bytes, 0, 10));
  EXPECT_OK(MakeBorrowedBitmapCursor(view, {.capacity = 37, .granularity = 4}));
  EXPECT_EQ(MakeBorrowedBitmapCursor(view, {.capacity = 41, .granularity = 4}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeBorrowedBitmapCursor(view, {.capacity = 36, .granularity = 4}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeBorrowedBitmapCursor(view, {.capacity = 40, .granularity = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(const auto shorter, BitmapView::Create(bytes, 0, 9));
  EXPECT_FALSE(
      MakeBorrowedBitmapCursor(view, shorter, BitmapOp::kXor, {.capacity = 40, .granularity = 4})
          .ok());
  EXPECT_FALSE(
      MakeBorrowedBitmapCursor(shorter, view, BitmapOp::kXor, {.capacity = 40, .granularity = 4})
          .ok());
}

TEST(BitmapCursorTest, RefusesAnOperationThatThereIsNot) {
  const uint8_t bytes[1] = {};
  ASSERT_OK_AND_ASSIGN(const auto view, BitmapView::Create(bytes, 0, 8));
  for (const int op : {-1, 4, 255}) {
    EXPECT_EQ(MakeBorrowedBitmapCursor(view, view, static_cast<BitmapOp>(op),
                                       {.capacity = 8, .granularity = 1})
                  .status(),
              absl::InvalidArgumentError("unknown bitmap operation"));
  }
}

TEST(BitmapCursorTest, E7LargestGranularityDoesNotWrap) {
  const uint8_t bytes[1] = {3};
  ASSERT_OK_AND_ASSIGN(
      auto cursor,
      MakeBorrowedBitmapCursor(ValueOf(BitmapView::Create(bytes, 0, 2)),
                               {.capacity = kMaxCapacity, .granularity = kMaxGranularity}));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{0, kMaxCapacity}}));
  EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, kMaxGranularity)),
            (Ranges{{kMaxGranularity, kMaxCapacity - kMaxGranularity}}));
}

TEST(BitmapCursorTest, E9FullVolumeIsOneExtentAndE8EmptyOneNone) {
  for (const size_t blocks : std::initializer_list<size_t>{1, 63, 64, 65, 4096, 100'000}) {
    const std::vector<uint8_t> ones((blocks + 7) / 8, 0xff);
    const std::vector<uint8_t> zeros((blocks + 7) / 8, 0);
    ASSERT_OK_AND_ASSIGN(const auto full, BitmapView::Create(ones, 0, blocks));
    ASSERT_OK_AND_ASSIGN(const auto empty, BitmapView::Create(zeros, 0, blocks));
    const uint64_t capacity = blocks * 512 - 1;
    EXPECT_EQ(ValueOf(test::Drain(*ValueOf(
                  MakeBorrowedBitmapCursor(full, {.capacity = capacity, .granularity = 512})))),
              (Ranges{{0, capacity}}));
    EXPECT_EQ(ValueOf(test::Drain(*ValueOf(
                  MakeBorrowedBitmapCursor(empty, {.capacity = capacity, .granularity = 512})))),
              Ranges{});
    EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeBorrowedBitmapCursor(
                  full, full, BitmapOp::kXor, {.capacity = capacity, .granularity = 512})))),
              Ranges{});
  }
}

// Alternating bits give the most edges per word; all small batch sizes.
TEST(BitmapCursorTest, HandsOnAlternatingBlocksInBatchesOfAnySize) {
  std::vector<bool> bits(5000);
  for (size_t i = 0; i < bits.size(); i += 2) bits[i] = true;
  const auto bytes = Pack(bits, 0, 1);
  ASSERT_OK_AND_ASSIGN(auto cursor,
                       MakeBorrowedBitmapCursor(ValueOf(BitmapView::Create(bytes, 0, bits.size())),
                                                {.capacity = bits.size(), .granularity = 1}));
  const Ranges want = reference::RunsOf(bits);
  for (size_t batch = 1; batch < 70; ++batch) {
    ASSERT_EQ(ValueOf(test::DrainFrom(*cursor, 0, batch)), want) << batch;
  }
}

TEST(BitmapCursorTest, ReadsNoByteOutsideTheView) {
  test::SeededRandom random(4);
  for (size_t count = 1; count < 300; ++count) {
    for (const size_t first : {size_t{0}, count % 8, count % 64}) {
      const auto bits = Clustered(count, random);
      BitmapFormat format;
      if (count % 2 != 0) format.order = BitmapFormat::BitOrder::kMostSignificantFirst;
      format.inverted = count % 3 == 0;
      format.reversed_word_bytes = static_cast<uint8_t>(1u << (count % 5 < 4 ? count % 5 : 0));
      const auto bytes = Pack(bits, first, count, format);
      test::GuardedMemory memory(bytes.size());
      std::copy(bytes.begin(), bytes.end(), memory.data());
      ASSERT_OK_AND_ASSIGN(const auto view,
                           BitmapView::Create({memory.data(), bytes.size()}, first, count, format));
      ASSERT_EQ(ValueOf(test::Drain(*ValueOf(
                    MakeBorrowedBitmapCursor(view, {.capacity = count, .granularity = 1})))),
                reference::RunsOf(bits))
          << count << " bits from bit " << first;
    }
  }
}

// 2^34 blocks (64 TiB at 4 KiB). The mapping is only touched where bits are set.
TEST(BitmapCursorTest, E7CrossesTheBordersOfThirtyTwoBits) {
  constexpr uint64_t kBlocks = uint64_t{1} << 34;
  constexpr size_t kBytes = kBlocks / 8;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const bytes = static_cast<uint8_t*>(memory);
  const uint64_t border = uint64_t{1} << 32;
  for (const uint64_t bit : {border - 1, border, border + 1, kBlocks - 1}) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] | 1u << (bit % 8));
  }
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeBorrowedBitmapCursor(
                                        ValueOf(BitmapView::Create({bytes, kBytes}, 0, kBlocks)),
                                        {.capacity = kBlocks * 4096, .granularity = 4096}));
  // Seek is O(1): it reads nothing before the position.
  EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, (border - 100'000) * 4096 + 17, 3)),
            (Ranges{{(border - 1) * 4096, 3 * 4096}, {(kBlocks - 1) * 4096, 4096}}));
  EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, border * 4096 + 1, 3)),
            (Ranges{{border * 4096, 2 * 4096}, {(kBlocks - 1) * 4096, 4096}}));
  munmap(memory, kBytes);
}

constexpr struct {
  BitmapOp op;
  bool (*bit)(bool, bool);
} kOperations[] = {{BitmapOp::kXor, [](bool x, bool y) { return x != y; }},
                   {BitmapOp::kAndNot, [](bool x, bool y) { return y && !x; }},
                   {BitmapOp::kOr, [](bool x, bool y) { return x || y; }},
                   {BitmapOp::kAnd, [](bool x, bool y) { return x && y; }}};

BitmapFormat AnyFormat() {
  BitmapFormat format;
  if (test::Between(0, 2) == 0) format.order = BitmapFormat::BitOrder::kMostSignificantFirst;
  format.inverted = test::Between(0, 2) == 0;
  format.reversed_word_bytes = *rc::gen::element<uint8_t>(1, 2, 4, 8);
  return format;
}

RC_GTEST_PROP(BitmapCursorProperty, MatchesBitByBitFromEveryOffset, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const auto blocks = test::Between<size_t>(1, 400);
  const auto granularity = *rc::gen::element<uint64_t>(1, 3, 4, 512);
  const auto first_a = test::Between<size_t>(0, 130);
  // In half of the runs both bitmaps share an alignment and are read in place.
  const bool alike = test::Between(0, 2) == 0;
  const auto first_b =
      alike ? first_a + 64 * test::Between<size_t>(0, 3) : test::Between<size_t>(0, 130);
  const auto batch = test::Between<size_t>(1, 40);
  const uint64_t capacity = blocks * granularity - test::Between<uint64_t>(0, granularity);
  const auto a = Clustered(blocks, random);
  const auto b = Clustered(blocks, random);
  const BitmapFormat format_a = AnyFormat();
  BitmapFormat format_b = AnyFormat();
  if (alike) {
    format_b.order = format_a.order;
    format_b.reversed_word_bytes = format_a.reversed_word_bytes;
  }
  const auto bytes_a = Pack(a, first_a, 1, format_a);
  const auto bytes_b = Pack(b, first_b, 2, format_b);
  const auto view_a = ValueOf(BitmapView::Create(bytes_a, first_a, blocks, format_a));
  const auto view_b = ValueOf(BitmapView::Create(bytes_b, first_b, blocks, format_b));

  for (const auto& operation : kOperations) {
    std::vector<bool> combined(blocks);
    for (size_t i = 0; i < blocks; ++i) combined[i] = operation.bit(a[i], b[i]);
    const Ranges full = ExtentsOf(combined, capacity, granularity);
    auto cursor = ValueOf(MakeBorrowedBitmapCursor(
        view_a, view_b, operation.op, {.capacity = capacity, .granularity = granularity}));
    RC_ASSERT(ValueOf(test::Drain(*cursor, batch)) == full);
    for (int i = 0; i < 30; ++i) {
      const uint64_t offset = random() % (capacity + 1);
      RC_ASSERT(ValueOf(test::DrainFrom(*cursor, offset, batch)) ==
                reference::CutAt(
                    full, offset == capacity ? capacity : offset / granularity * granularity));
    }
  }
  auto single =
      ValueOf(MakeBorrowedBitmapCursor(view_a, {.capacity = capacity, .granularity = granularity}));
  RC_ASSERT(ValueOf(test::Drain(*single, batch)) == ExtentsOf(a, capacity, granularity));
}

RC_GTEST_PROP(BitmapCountsProperty, MatchBitByBitInEveryRange, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const auto blocks = test::Between<size_t>(1, 1000);
  const auto granularity = *rc::gen::element<uint64_t>(1, 3, 4096);
  const uint64_t capacity = blocks * granularity - test::Between<uint64_t>(0, granularity);
  const auto first = test::Between<size_t>(0, 70);
  const auto a = Clustered(blocks, random);
  const auto b = Clustered(blocks, random);
  const BitmapFormat format = AnyFormat();
  const auto bytes_a = Pack(a, first, 1, format);
  const auto bytes_b = Pack(b, 0, 2);
  const auto view_a = ValueOf(BitmapView::Create(bytes_a, first, blocks, format));
  const auto view_b = ValueOf(BitmapView::Create(bytes_b, 0, blocks));
  for (const auto& operation : kOperations) {
    std::vector<bool> combined(blocks);
    for (size_t i = 0; i < blocks; ++i) combined[i] = operation.bit(a[i], b[i]);
    for (int i = 0; i < 20; ++i) {
      const uint64_t begin = random() % (blocks + 1);
      const uint64_t end = begin + random() % (blocks + 1 - begin);
      BitmapCounts want;
      for (uint64_t k = begin; k < end; ++k) {
        want.blocks += combined[k] ? 1 : 0;
        want.runs += combined[k] && (k == begin || !combined[k - 1]) ? 1 : 0;
      }
      RC_ASSERT(CountBlocks(view_a, view_b, operation.op, begin, end) == want);
    }
    const uint64_t offset = random() % (capacity + 1);
    uint64_t want = 0;
    auto cursor = ValueOf(MakeBorrowedBitmapCursor(
        view_a, view_b, operation.op, {.capacity = capacity, .granularity = granularity}));
    const Ranges rest = ValueOf(test::DrainFrom(*cursor, offset));
    for (const auto& [begin, length] : rest) want += length;
    RC_ASSERT(ValueOf(BytesToCome(view_a, view_b, operation.op,
                                  {.capacity = capacity, .granularity = granularity}, offset)) ==
              want);
  }
  RC_ASSERT(ValueOf(BytesToCome(view_b, {.capacity = capacity, .granularity = granularity}, 0)) ==
            ValueOf(BytesToCome(view_b, view_b, BitmapOp::kAnd,
                                {.capacity = capacity, .granularity = granularity}, 0)));
}

// Whole words are read in place or copied 1024 at a time, what is left of the last one is copied.
TEST(BitmapCountsTest, ARunAcrossReadsIsOne) {
  constexpr uint64_t kBits = 3000 * 64 + 13;
  const std::vector<uint8_t> bytes((kBits + 3 + 7) / 8, 0xFF);
  for (const uint64_t first : {0u, 3u, 8u}) {
    const uint64_t bits = kBits - first;
    const BitmapView view = ValueOf(BitmapView::Create(bytes, first, bits));
    EXPECT_EQ(CountBlocks(view, 0, bits), (BitmapCounts{bits, 1})) << first;
    EXPECT_EQ(CountBlocks(view, view, BitmapOp::kAnd, 5, bits), (BitmapCounts{bits - 5, 1}))
        << first;
  }
}

// So that a consumer can report progress, or stop, however little has changed.
TEST(BitmapCursorTest, ACallScansAPartOfAQuietBitmap) {
  const std::vector<uint8_t> bytes(20 << 20);
  const VolumeGeometry geometry{.capacity = bytes.size() * 8 * 4096, .granularity = 4096};
  for (const uint64_t block_size : {0u, 4096u, 65536u}) {
    auto cursor = ValueOf(MakeBorrowedBitmapCursor(
        ValueOf(BitmapView::Create(bytes, 0, bytes.size() * 8)), geometry));
    if (block_size != 0) cursor = ValueOf(ToBlocks(std::move(cursor), block_size));
    ExtentBatch batch;
    for (uint64_t before = 0; before < geometry.capacity; before = cursor->covered()) {
      EXPECT_OK(cursor->Next(batch).status());
      EXPECT_TRUE(batch.empty());
      EXPECT_GT(cursor->covered(), before);
      EXPECT_LE(cursor->covered() - before, geometry.capacity / 2) << block_size;
    }
  }
}

TEST(BitmapCountsTest, AtTheEdgeOfTheOffsets) {
  const uint8_t bytes[1] = {3};
  ASSERT_OK_AND_ASSIGN(const auto view, BitmapView::Create(bytes, 0, 2));
  EXPECT_EQ(
      ValueOf(BytesToCome(view, {.capacity = kMaxCapacity, .granularity = kMaxGranularity}, 0)),
      kMaxCapacity);
  EXPECT_EQ(ValueOf(BytesToCome(view, {.capacity = kMaxCapacity, .granularity = kMaxGranularity},
                                kMaxCapacity)),
            0u);
  EXPECT_FALSE(BytesToCome(view, {.capacity = kMaxCapacity - 1, .granularity = kMaxGranularity},
                           kMaxCapacity)
                   .ok());
  EXPECT_FALSE(BytesToCome(view, {.capacity = kMaxCapacity, .granularity = 4096}, 0).ok());
}

// Words of the other byte order, at every position and length around pieces of 64 words.
TEST(BitmapView, ReversedWordsAreCopiedInOrder) {
  test::SeededRandom random(5);
  for (const uint8_t word : {uint8_t{2}, uint8_t{4}, uint8_t{8}}) {
    std::vector<uint8_t> plain(1200 / word * word);
    for (uint8_t& byte : plain) byte = static_cast<uint8_t>(random());
    std::vector<uint8_t> reversed(plain.size());
    for (size_t i = 0; i < plain.size(); ++i)
      reversed[i / word * word + word - 1 - i % word] = plain[i];
    for (const bool inverted : {false, true}) {
      for (const uint64_t first : {0u, 1u, 9u, 64u}) {
        for (const uint64_t bits : {1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 8200u, 9000u}) {
          const auto expected = BitmapView::Create(plain, first, bits, {.inverted = inverted});
          const auto view = BitmapView::Create(reversed, first, bits,
                                               {.inverted = inverted, .reversed_word_bytes = word});
          ASSERT_TRUE(expected.ok() && view.ok());
          for (const uint64_t position : {uint64_t{0}, bits / 2, bits - 1, bits}) {
            std::vector<uint64_t> want(150, 1);
            std::vector<uint64_t> got(150, 2);
            expected->CopyWords(position, want.data(), want.size());
            view->CopyWords(position, got.data(), got.size());
            ASSERT_EQ(got, want) << int{word} << " " << first << " " << bits << " " << position;
          }
        }
      }
    }
  }
  const std::vector<uint8_t> odd(7);
  EXPECT_FALSE(BitmapView::Create(odd, 0, 33, {.reversed_word_bytes = 4}).ok());
  EXPECT_FALSE(BitmapView::Create(odd, 0, 8, {.reversed_word_bytes = 3}).ok());
}

// Reading a partial word in place would read past the end of the memory.
TEST(BitmapView, OnlyWholeWordsAreReadInPlace) {
  const std::vector<uint8_t> bytes(17);
  const BitmapView view = test::ValueOf(BitmapView::Create(bytes, 0, 130));
  EXPECT_EQ(view.InPlace(0, 2), bytes.data());
  EXPECT_EQ(view.InPlace(0, 3), nullptr);
  EXPECT_EQ(view.InPlace(64, 1), bytes.data() + 8);
  EXPECT_EQ(view.InPlace(64, 2), nullptr);
  EXPECT_EQ(view.InPlace(8, 2), nullptr);
  EXPECT_EQ(view.InPlace(128, 1), nullptr);
  EXPECT_EQ(view.InPlace(131, 0), nullptr);
}

// These views start inside a byte, so their words are copied. Words past the last block are empty.
TEST(BitmapPairTest, HandsOutTheWordsOfItsBitsAndNoMore) {
  const std::vector<uint8_t> bytes(13000, 0xff);
  for (const uint64_t bits : {1u, 63u, 64u, 65u, 128u, 640u, 16384u, 65536u, 100000u}) {
    const BitmapView view = test::ValueOf(BitmapView::Create(bytes, 3, bits));
    for (const BitmapPair& pair : {BitmapPair(view), BitmapPair(view, view)}) {
      for (const uint64_t position : {uint64_t{0}, bits / 2, bits - 1}) {
        for (const uint64_t most : {1u, 2u, 10u, 1024u, 5000u}) {
          const uint64_t left = bits - position;
          // A copy has room for 1024 words.
          const uint64_t want = std::min<uint64_t>({(left + 63) / 64, most, 1024});
          const auto got = pair.WithWords(
              position, most, [](const uint8_t*, const uint8_t*, size_t words) { return words; });
          EXPECT_EQ(got, want) << bits << " bits from " << position << ", at most " << most;
        }
      }
    }
  }
}

}  // namespace bitmap_cursor_test
}  // namespace cbt
