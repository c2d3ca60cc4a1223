// Dense bitmaps in every layout, against bits written one by one.
#include "cbt/source/dense_bitmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/memory_image.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace dense_bitmap_test {

using absl::StatusCode;
using reference::ByteSet;
using reference::Ranges;
using test::AnyRandom;
using test::Between;
using test::ValueOf;

constexpr auto kLsb = BitmapFormat::BitOrder::kLeastSignificantFirst;
constexpr auto kMsb = BitmapFormat::BitOrder::kMostSignificantFirst;

// The descriptor outlives the file's name.
std::shared_ptr<const Image> ImageOf(const std::vector<uint8_t>& bytes) {
  return test::MemoryImage(bytes).Open();
}

// Sets bit `index` as a machine with words of `word` bytes stores it. Bit 0 is the most significant
// one if `msb`, otherwise the least; words are big-endian if `big`.
void SetBit(std::vector<uint8_t>& bytes, uint64_t index, size_t word, bool msb, bool big) {
  const uint64_t in_word = index % (8 * word);
  const uint64_t weight = msb ? 8 * word - 1 - in_word : in_word;  // 2^weight
  const uint64_t byte = big ? word - 1 - weight / 8 : weight / 8;
  bytes[index / (8 * word) * word + byte] |= static_cast<uint8_t>(1u << weight % 8);
}

Ranges Expected(const ByteSet& blocks, uint64_t granularity, uint64_t capacity) {
  Ranges ranges = reference::RunsOf(blocks);
  for (auto& [offset, length] : ranges) {
    offset *= granularity;
    length = std::min(length * granularity, capacity - offset);
  }
  return ranges;
}

RC_GTEST_PROP(DenseBitmap, EveryLayoutAtEveryOffset, ()) {
  std::mt19937_64 random = AnyRandom();
  const auto bits = Between<uint64_t>(1, 700);
  const uint64_t granularity = Between<uint64_t>(1, 5000);
  const uint64_t capacity = bits * granularity - random() % granularity;
  const size_t word = size_t{1} << Between(0, 4);
  const bool msb = random() % 2 == 0;
  const bool big = random() % 2 == 0;
  const bool inverted = random() % 2 == 0;
  DenseBitmapLayout layout = {
      .granularity = granularity, .header_bytes = random() % 20, .first_bit = random() % 100};
  layout.format.order = msb ? kMsb : kLsb;
  layout.format.inverted = inverted;
  // Little-endian words with the least significant bit first have the same layout as bytes, and so
  // do big-endian ones with the most significant first.
  layout.format.reversed_word_bytes = static_cast<uint8_t>(msb == big ? 1 : word);
  ByteSet set(bits);
  const uint64_t stored = layout.first_bit + bits + random() % 50;
  std::vector<uint8_t> bytes((stored + 8 * word - 1) / (8 * word) * word);
  const size_t density = Between<size_t>(1, 20);
  for (size_t i = 0; i < bits; ++i) {
    set[i] = i > 0 && random() % 4 != 0 ? bool{set[i - 1]} : random() % density == 0;
    if (set[i] != inverted) SetBit(bytes, layout.first_bit + i, word, msb, big);
  }
  // Bits outside the volume are noise.
  for (uint64_t i = 0; i < layout.first_bit; i += 3) SetBit(bytes, i, word, msb, big);
  for (uint64_t i = layout.first_bit + bits; i < bytes.size() * 8; i += 2) {
    SetBit(bytes, i, word, msb, big);
  }
  std::vector<uint8_t> file(layout.header_bytes, 0xff);
  file.insert(file.end(), bytes.begin(), bytes.end());
  const std::string text(file.begin(), file.end());
  const std::string encoded = absl::Base64Escape(text);

  std::vector<std::unique_ptr<ExtentCursor>> cursors;
  const auto add = [&cursors](absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor) {
    if (!cursor.ok()) RC_FAIL(cursor.status().ToString());
    cursors.push_back(*std::move(cursor));
  };
  add(MakeDenseBitmapCursor(ImageOf(file), layout, capacity));
  const auto raw = MakeBorrowedMemoryStream(file, "bits");
  add(ReadDenseBitmap(*raw, false, layout, capacity));
  const auto base64 = MakeBorrowedMemoryStream(
      {reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size()}, "bits");
  add(ReadDenseBitmap(*base64, true, layout, capacity));
  const Ranges expected = Expected(set, granularity, capacity);
  for (const auto& cursor : cursors) {
    RC_ASSERT(ValueOf(test::Drain(*cursor)) == expected);
    const uint64_t start = random() % (capacity + 1);
    test::RequireOk(cursor->Seek(start));
    Ranges rest;
    const uint64_t from = start / granularity * granularity;
    for (const auto& [offset, length] : expected) {
      const uint64_t begin = std::max(offset, from);
      if (begin < offset + length) rest.emplace_back(begin, offset + length - begin);
    }
    if (start == capacity) rest.clear();
    RC_ASSERT(ValueOf(test::Drain(*cursor)) == rest);
  }

  // One byte less than the volume needs.
  const uint64_t needed = layout.header_bytes + (layout.first_bit + bits + 7) / 8;
  if (layout.format.reversed_word_bytes == 1) {
    file.resize(needed - 1);
    RC_ASSERT(MakeDenseBitmapCursor(ImageOf(file), layout, capacity).status().code() ==
              StatusCode::kInvalidArgument);
    const auto stream = MakeBorrowedMemoryStream(file, "bits");
    RC_ASSERT(!ReadDenseBitmap(*stream, false, layout, capacity).ok());
  }
}

TEST(DenseBitmap, RunsGoOnAcrossWindows) {
  // Three windows and a part, with a run across each window's end.
  const uint64_t window = 8 * kMiB;
  std::vector<uint8_t> bytes((3 * window + 1000) / 8);
  const auto set = [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | 1u << i % 8);
    }
  };
  set(window - 1, window + 1);
  set(2 * window, 2 * window + 5);
  set(3 * window - 100, 3 * window + 1000);
  const auto image = ImageOf(bytes);
  const auto cursor = MakeDenseBitmapCursor(image, {.granularity = 512}, (3 * window + 1000) * 512);
  ASSERT_OK(cursor);
  const Ranges expected = {{(window - 1) * 512, 1024},
                           {2 * window * 512, 5 * 512},
                           {(3 * window - 100) * 512, 1100 * 512}};
  EXPECT_EQ(ValueOf(test::Drain(**cursor)), expected);
  for (const uint64_t bit : {uint64_t{1}, window - 1, window, window + 1, 2 * window + 3}) {
    ASSERT_OK((*cursor)->Seek(bit * 512));
    ASSERT_OK_AND_ASSIGN(const Ranges rest, test::Drain(**cursor));
    EXPECT_EQ(rest.back(), expected.back());
    EXPECT_EQ(rest.size(), bit > window + 1 ? 2u : bit == window + 1 ? 2u : 3u) << bit;
  }
}

TEST(DenseBitmap, LayoutsThatAreNone) {
  const auto image = ImageOf(std::vector<uint8_t>(100));
  const auto code = [&](const DenseBitmapLayout& layout) {
    return MakeDenseBitmapCursor(image, layout, 4096).status().code();
  };
  EXPECT_EQ(code({}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.granularity = 512, .header_bytes = ~uint64_t{0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.granularity = 512, .first_bit = ~uint64_t{0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.granularity = 512, .format = {.reversed_word_bytes = 3}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.granularity = 512}), StatusCode::kOk);
  const std::string no_base64 = "!!!!!!!!";
  const auto stream = MakeBorrowedMemoryStream(
      {reinterpret_cast<const uint8_t*>(no_base64.data()), no_base64.size()}, "bits");
  EXPECT_EQ(ReadDenseBitmap(*stream, true, {.granularity = 512}, 4096).status().code(),
            StatusCode::kDataLoss);
}

}  // namespace dense_bitmap_test
}  // namespace cbt
