#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace encode_tuples_test {

using simd::EncodeTuplesKernels;
using simd::kTupleBytes;
using simd::TupleScan;
using test::GuardedMemory;

// Byte by byte, from the encoding guide.
void AppendVarint(std::vector<uint8_t>& out, uint64_t value) {
  do {
    const uint8_t low = value & 0x7f;
    value >>= 7;
    out.push_back(static_cast<uint8_t>(low | (value != 0 ? 0x80 : 0)));
  } while (value != 0);
}

std::vector<uint8_t> Expected(uint64_t offset, uint64_t length) {
  std::vector<uint8_t> fields;
  if (offset != 0) {
    fields.push_back(1 << 3);
    AppendVarint(fields, offset);
  }
  if (length != 0) {
    fields.push_back(2 << 3);
    AppendVarint(fields, length);
  }
  std::vector<uint8_t> tuple = {3 << 3 | 2};
  AppendVarint(tuple, fields.size());
  tuple.insert(tuple.end(), fields.begin(), fields.end());
  return tuple;
}

class EncodeTuplesTest : public test::VariantTest<EncodeTuplesKernels> {
 protected:
  // Encodes with exactly `room` bytes before a guard page.
  void Check(const std::vector<uint64_t>& offsets, const std::vector<uint64_t>& lengths,
             size_t room) {
    GuardedMemory out(room);
    const TupleScan scan =
        kernels().encode(offsets.data(), lengths.data(), offsets.size(), out.data(), room);
    std::vector<uint8_t> want;
    size_t tuples = 0;
    while (tuples < offsets.size() && room - want.size() >= kTupleBytes) {
      const auto tuple = Expected(offsets[tuples], lengths[tuples]);
      want.insert(want.end(), tuple.begin(), tuple.end());
      ++tuples;
    }
    ASSERT_EQ(scan.tuples, tuples) << "of " << offsets.size() << ", room " << room;
    ASSERT_EQ(std::vector<uint8_t>(out.data(), out.data() + scan.bytes), want)
        << offsets.size() << " tuples, room " << room;
  }
};

TEST_P(EncodeTuplesTest, MatchesTheEncodingGuideAroundEveryPowerOfTwo) {
  std::vector<uint64_t> values = {0};
  for (int bit = 0; bit < 63; ++bit) {
    const uint64_t power = uint64_t{1} << bit;
    for (const uint64_t value : {power - 1, power, power + 1}) {
      if (value < uint64_t{1} << 63) values.push_back(value);
    }
  }
  values.push_back(INT64_MAX);
  for (const uint64_t offset : values) {
    std::vector<uint64_t> offsets(values.size(), offset);
    Check(offsets, values, values.size() * kTupleBytes);
    if (HasFatalFailure()) FAIL() << "offset " << offset;
  }
}

TEST_P(EncodeTuplesTest, NeverWritesPastTheRoom) {
  test::SeededRandom random(1);
  for (size_t room = 0; room < 400; ++room) {
    std::vector<uint64_t> offsets(30);
    std::vector<uint64_t> lengths(30);
    for (size_t i = 0; i < offsets.size(); ++i) {
      offsets[i] = random() >> (1 + random() % 63);
      lengths[i] = random() >> (1 + random() % 63);
    }
    Check(offsets, lengths, room);
    if (HasFatalFailure()) return;
  }
}

// Runs of tuples that fit into cells, between others that do not, at every position of a vector.
TEST_P(EncodeTuplesTest, MixesUsualAndOddTuples) {
  test::SeededRandom random(2);
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    std::vector<uint64_t> offsets(random() % 60);
    std::vector<uint64_t> lengths(offsets.size());
    for (size_t i = 0; i < offsets.size(); ++i) {
      offsets[i] = 1 + (random() >> (15 + random() % 49));
      lengths[i] = 1 + (random() >> (29 + random() % 35));
      if (random() % 20 == 0) offsets[i] = random() % 2 * (random() >> 1);
      if (random() % 20 == 0) lengths[i] = random() % 2 * (random() >> 1);
    }
    Check(offsets, lengths, offsets.size() * (10 + random() % 14));
    if (HasFatalFailure()) return;
  }
}

// Tuples with varints of equal lengths are encoded together: a different one at every position.
TEST_P(EncodeTuplesTest, FindsTheOneThatDiffersAmongTuplesThatAreAlike) {
  constexpr size_t kCount = 70;
  constexpr uint64_t kMost = uint64_t{INT64_MAX};
  constexpr uint64_t kOdd[] = {0,
                               1,
                               127,
                               128,
                               65537,
                               (uint64_t{1} << 35) - 1,
                               uint64_t{1} << 42,
                               (uint64_t{1} << 49) - 1,
                               uint64_t{1} << 49,
                               (uint64_t{1} << 56) - 1,
                               uint64_t{1} << 56,
                               kMost};
  for (const uint64_t base : {uint64_t{1} << 40, uint64_t{1} << 55, uint64_t{1} << 60}) {
    for (size_t at = 0; at < kCount; ++at) {
      for (const uint64_t odd : kOdd) {
        for (const bool in_offsets : {true, false}) {
          std::vector<uint64_t> offsets(kCount);
          std::vector<uint64_t> lengths(kCount, 65536);
          for (size_t i = 0; i < kCount; ++i) offsets[i] = base + i * 65536;
          (in_offsets ? offsets : lengths)[at] = odd;
          Check(offsets, lengths, kCount * 22 - at);
          if (HasFatalFailure()) FAIL() << odd << " at " << at << " from " << base;
        }
      }
    }
  }
}

// Rows of one size, of each length of varint, and one tuple of the next size at every place.
TEST_P(EncodeTuplesTest, WritesRowsOfEverySize) {
  test::SeededRandom random(20261125);
  for (size_t offset_bytes = 1; offset_bytes <= 9; ++offset_bytes) {
    for (size_t length_bytes = 1; length_bytes <= 9; ++length_bytes) {
      const auto value = [&](size_t count) {
        return random() >> (64 - 7 * count) | uint64_t{1} << (7 * count - 1);
      };
      std::vector<uint64_t> offsets(37);
      for (uint64_t& offset : offsets) offset = value(offset_bytes);
      std::vector<uint64_t> lengths(37, value(length_bytes));
      for (size_t at = 0; at < offsets.size(); ++at) {
        Check(offsets, lengths, 37 * kTupleBytes + 200);
        const uint64_t kept = lengths[at];
        lengths[at] = kept - 1;
        Check(offsets, lengths, 37 * kTupleBytes + 200);
        lengths[at] = kept;
      }
      if (HasFatalFailure()) FAIL() << offset_bytes << " and " << length_bytes;
    }
  }
}

// The smallest, the largest and random values of each varint length, in rows.
TEST_P(EncodeTuplesTest, WritesRowsOfEveryLayout) {
  test::SeededRandom random(20261124);
  for (size_t offset_bytes = 1; offset_bytes <= 9; ++offset_bytes) {
    for (size_t length_bytes = 1; length_bytes <= 9; ++length_bytes) {
      std::vector<uint64_t> offsets;
      std::vector<uint64_t> lengths;
      for (size_t i = 0; i < 37; ++i) {
        const auto value = [&](size_t count) {
          const uint64_t most = (uint64_t{1} << (7 * count)) - 1;
          const uint64_t least = count == 1 ? 1 : uint64_t{1} << (7 * (count - 1));
          if (i % 5 == 0) return least;
          return i % 5 == 1 ? most : least + random() % (most - least + 1);
        };
        offsets.push_back(value(offset_bytes));
        lengths.push_back(value(length_bytes));
      }
      Check(offsets, lengths, 37 * kTupleBytes + 200);
      // The next length, and none, at every position.
      for (size_t at = 0; at < offsets.size(); ++at) {
        for (std::vector<uint64_t>* const values : {&offsets, &lengths}) {
          const uint64_t kept = (*values)[at];
          for (const uint64_t other : {uint64_t{0}, kept << 7 & ~(uint64_t{1} << 63), kept >> 7}) {
            (*values)[at] = other;
            Check(offsets, lengths, 37 * kTupleBytes + 200);
          }
          (*values)[at] = kept;
        }
      }
      if (HasFatalFailure()) FAIL() << offset_bytes << " and " << length_bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, EncodeTuplesTest,
                         testing::ValuesIn(test::AsVector(simd::EncodeTuplesVariants())),
                         test::VariantName<EncodeTuplesKernels>);

}  // namespace encode_tuples_test
}  // namespace cbt
