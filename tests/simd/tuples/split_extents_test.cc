#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace split_extents_test {

using simd::kSplitSlack;
using simd::SplitExtentsKernels;
using simd::SplitScan;
using test::GuardedMemory;

using Numbers = std::vector<uint64_t>;

class SplitExtentsTest : public test::VariantTest<SplitExtentsKernels> {
 protected:
  // Against pieces that are cut one by one; all arrays end at guard pages.
  void Check(const Numbers& offsets, const Numbers& lengths, uint64_t most, uint64_t limit,
             size_t room) {
    Numbers want_offsets;
    Numbers want_lengths;
    size_t extents = 0;
    for (; extents < offsets.size() && room - want_offsets.size() >= 2; ++extents) {
      const uint64_t begin = offsets[extents];
      const uint64_t end = std::min(begin + lengths[extents], limit);
      if ((end - begin + most - 1) / most > 2) break;
      for (uint64_t at = begin; at < end; at += most) {
        want_offsets.push_back(at);
        want_lengths.push_back(std::min(most, end - at));
      }
    }
    const GuardedMemory in_offsets(offsets.size() * 8);
    const GuardedMemory in_lengths(offsets.size() * 8);
    auto* const from = reinterpret_cast<uint64_t*>(in_offsets.data());
    auto* const sizes = reinterpret_cast<uint64_t*>(in_lengths.data());
    std::copy(offsets.begin(), offsets.end(), from);
    std::copy(lengths.begin(), lengths.end(), sizes);
    const GuardedMemory out_offsets((room + kSplitSlack) * 8);
    const GuardedMemory out_lengths((room + kSplitSlack) * 8);
    auto* const got_offsets = reinterpret_cast<uint64_t*>(out_offsets.data());
    auto* const got_lengths = reinterpret_cast<uint64_t*>(out_lengths.data());
    const SplitScan scan =
        kernels().split(from, sizes, offsets.size(), most, limit, got_offsets, got_lengths, room);
    ASSERT_EQ(scan.extents, extents) << "of " << offsets.size() << ", room " << room;
    ASSERT_EQ(scan.pieces, want_offsets.size()) << "room " << room;
    ASSERT_EQ(Numbers(got_offsets, got_offsets + scan.pieces), want_offsets) << "room " << room;
    ASSERT_EQ(Numbers(got_lengths, got_lengths + scan.pieces), want_lengths) << "room " << room;
  }
};

TEST_P(SplitExtentsTest, CutsEveryNumberOfExtentsIntoEveryRoom) {
  test::SeededRandom random(1);
  for (size_t count = 0; count <= 40; ++count) {
    for (size_t room = 0; room <= 2 * count + 3; ++room) {
      SCOPED_TRACE(absl::StrCat(count, " extents"));
      const uint64_t most = 1 + random() % 9;
      // Sometimes one is too long, anywhere; sometimes the last one is cut at the limit.
      const size_t too_long = random() % 3 == 0 ? random() % (count + 1) : count;
      Numbers offsets;
      Numbers lengths;
      uint64_t at = random() % 5 == 0 ? uint64_t{INT64_MAX} - 4000 : random() % 50;
      for (size_t i = 0; i < count; ++i) {
        offsets.push_back(at += random() % 3);
        lengths.push_back(i == too_long ? 2 * most + 1 + random() % 20 : 1 + random() % (2 * most));
        at += lengths.back();
      }
      const uint64_t cut = count > 0 && random() % 2 == 0 ? random() % lengths.back() : 0;
      Check(offsets, lengths, most, at - cut, room);
      if (HasFatalFailure()) return;
    }
  }
}

// The lengths around one piece and two, in every lane.
TEST_P(SplitExtentsTest, TakesTheLengthsAroundOneAndTwoPieces) {
  constexpr uint64_t kMost = 4096;
  for (size_t at = 0; at < 24; ++at) {
    for (const uint64_t length : {uint64_t{1}, kMost - 1, kMost, kMost + 1, 2 * kMost - 1,
                                  2 * kMost, 2 * kMost + 1, 3 * kMost, uint64_t{1} << 62}) {
      Numbers offsets;
      Numbers lengths;
      uint64_t offset = 0;
      for (size_t i = 0; i < 24; ++i) {
        offsets.push_back(offset);
        lengths.push_back(i == at ? length : kMost);
        offset += lengths.back();
      }
      Check(offsets, lengths, kMost, INT64_MAX, 100);
      if (HasFatalFailure()) FAIL() << length << " at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, SplitExtentsTest,
                         testing::ValuesIn(test::AsVector(simd::SplitExtentsVariants())),
                         test::VariantName<SplitExtentsKernels>);

}  // namespace split_extents_test
}  // namespace cbt
