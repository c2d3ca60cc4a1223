#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace decode_tuples_test {

using simd::DecodeTuplesKernels;
using simd::TupleScan;
using test::GuardedMemory;

void AppendVarint(std::vector<uint8_t>& out, uint64_t value, size_t at_least = 1) {
  for (size_t i = 1; value >= 0x80 || i < at_least; ++i) {
    out.push_back(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<uint8_t>(value));
}

// One element in the form that the kernel accepts.
void AppendTuple(std::vector<uint8_t>& out, uint64_t offset, uint64_t length,
                 size_t offset_bytes = 1, size_t length_bytes = 1) {
  std::vector<uint8_t> content = {0x08};
  AppendVarint(content, offset, offset_bytes);
  content.push_back(0x10);
  AppendVarint(content, length, length_bytes);
  out.push_back(0x1a);
  out.push_back(static_cast<uint8_t>(content.size()));
  out.insert(out.end(), content.begin(), content.end());
}

class DecodeTuplesTest : public test::VariantTest<DecodeTuplesKernels> {
 protected:
  // Decodes bytes that end at a guard page; the result must equal the scalar variant's.
  void Check(const std::vector<uint8_t>& bytes, size_t room) {
    const GuardedMemory in(bytes.size());
    std::copy(bytes.begin(), bytes.end(), in.data());
    std::vector<uint64_t> want_offsets(room);
    std::vector<uint64_t> want_lengths(room);
    const TupleScan want = simd::scalar::kDecodeTuples.decode(
        in.data(), bytes.size(), want_offsets.data(), want_lengths.data(), room);
    const GuardedMemory offsets(room * 8);
    const GuardedMemory lengths(room * 8);
    const TupleScan got =
        kernels().decode(in.data(), bytes.size(), reinterpret_cast<uint64_t*>(offsets.data()),
                         reinterpret_cast<uint64_t*>(lengths.data()), room);
    const auto what = [&] {
      return absl::StrCat("room for ", room, " tuples, bytes ",
                          absl::BytesToHexString(std::string(bytes.begin(), bytes.end())));
    };
    ASSERT_EQ(got.tuples, want.tuples) << what();
    ASSERT_EQ(got.bytes, want.bytes) << what();
    const auto* got_offsets = reinterpret_cast<const uint64_t*>(offsets.data());
    const auto* got_lengths = reinterpret_cast<const uint64_t*>(lengths.data());
    for (size_t i = 0; i < got.tuples; ++i) {
      ASSERT_EQ(got_offsets[i], want_offsets[i]) << "tuple " << i << ", " << what();
      ASSERT_EQ(got_lengths[i], want_lengths[i]) << "tuple " << i << ", " << what();
    }
  }
};

// Compared with what was written, not with the scalar variant.
TEST_P(DecodeTuplesTest, TakesEveryLengthOfVarint) {
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> lengths;
  for (int high = 0; high < 56; ++high) {
    for (int low = 0; low < 56; ++low) {
      offsets.push_back((uint64_t{1} << high) | 1);
      lengths.push_back((uint64_t{2} << low) - 1);
      AppendTuple(bytes, offsets.back(), lengths.back());
    }
  }
  std::vector<uint64_t> got_offsets(offsets.size());
  std::vector<uint64_t> got_lengths(offsets.size());
  const TupleScan scan = kernels().decode(bytes.data(), bytes.size(), got_offsets.data(),
                                          got_lengths.data(), offsets.size());
  EXPECT_EQ(scan.tuples, offsets.size());
  EXPECT_EQ(scan.bytes, bytes.size());
  EXPECT_EQ(got_offsets, offsets);
  EXPECT_EQ(got_lengths, lengths);
}

// A tuple of any form at every position among plain ones, at the borders of vectors.
TEST_P(DecodeTuplesTest, StopsWhereTheScalarVariantDoes) {
  std::vector<std::vector<uint8_t>> odd;
  for (size_t first = 1; first <= 10; ++first) {
    for (size_t second = 1; second <= 10; ++second) {
      odd.emplace_back();
      AppendTuple(odd.back(), 5, 7, first, second);
      odd.emplace_back();
      AppendTuple(odd.back(), uint64_t{1} << std::min<size_t>(7 * first - 1, 62),
                  uint64_t{1} << std::min<size_t>(7 * second - 1, 62));
    }
  }
  odd.push_back({0x1a, 0x00});
  odd.push_back({0x1a, 0x02, 0x08, 0x01});
  odd.push_back({0x1a, 0x02, 0x10, 0x01});
  odd.push_back({0x1a, 0x04, 0x10, 0x01, 0x08, 0x01});
  odd.push_back({0x1a, 0x05, 0x08, 0x01, 0x10, 0x01, 0x00});
  odd.push_back({0x1a, 0x84, 0x00, 0x08, 0x01, 0x10, 0x01});
  odd.push_back({0x22, 0x04, 0x08, 0x01, 0x10, 0x01});
  odd.push_back({0x08, 0x01});
  odd.push_back(std::vector<uint8_t>(40, 0xff));
  odd.push_back(std::vector<uint8_t>(40, 0x80));
  for (const auto& element : odd) {
    for (size_t before = 0; before < 20; ++before) {
      std::vector<uint8_t> bytes;
      for (size_t i = 0; i < before; ++i) AppendTuple(bytes, 4096 * i + 1, 4096);
      bytes.insert(bytes.end(), element.begin(), element.end());
      for (size_t i = 0; i < 30; ++i) AppendTuple(bytes, (uint64_t{1} << 40) + i, 8192);
      Check(bytes, 64);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DecodeTuplesTest, ReadsNothingBehindTheEndAndWritesNothingBehindTheRoom) {
  test::SeededRandom random(1);
  std::vector<uint8_t> bytes;
  for (uint64_t i = 0; i < 40; ++i) AppendTuple(bytes, random() >> (10 + random() % 50), 1 + i);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Check({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut)}, 1 + cut % 50);
    if (HasFatalFailure()) return;
  }
}

TEST_P(DecodeTuplesTest, AgreesOnMutatedBytes) {
  test::SeededRandom random(2);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<uint8_t> bytes;
    for (uint64_t i = random() % 30; i > 0; --i) {
      AppendTuple(bytes, random() >> (8 + random() % 56), random() >> (8 + random() % 56));
    }
    for (uint64_t i = random() % 4; i > 0 && !bytes.empty(); --i) {
      uint8_t& byte = bytes[random() % bytes.size()];
      byte = static_cast<uint8_t>(random() % 3 == 0 ? random() : byte ^ 1u << random() % 8);
    }
    Check(bytes, 1 + random() % 40);
    if (HasFatalFailure()) return;
  }
}

// Tuples with varints of equal lengths are decoded together: flips every bit of them.
TEST_P(DecodeTuplesTest, AgreesOnTuplesThatAreAlikeButForOneBit) {
  for (const uint64_t length : {uint64_t{4096}, uint64_t{1} << 50}) {
    std::vector<uint8_t> bytes;
    for (uint64_t i = 0; i < 50; ++i) AppendTuple(bytes, (uint64_t{1} << 40) + i * 4096, length);
    Check(bytes, 50);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      Check(bytes, 50);
      if (HasFatalFailure()) FAIL() << "bit " << bit;
      bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    }
    // At every cut, and with every amount of room.
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      Check({bytes.begin(), bytes.end() - static_cast<std::ptrdiff_t>(cut)}, 1 + cut % 60);
      if (HasFatalFailure()) FAIL() << "cut " << cut;
    }
  }
}

// Rows of tuples of one size, in each layout, and another size of the same layout at every place.
TEST_P(DecodeTuplesTest, TakesRowsOfEverySize) {
  test::SeededRandom random(20261125);
  for (size_t offset_bytes = 1; offset_bytes <= 8; ++offset_bytes) {
    for (size_t length_bytes = 1; length_bytes <= 8; ++length_bytes) {
      const auto value = [&](size_t count) {
        return random() >> (64 - 7 * count) | uint64_t{1} << (7 * count - 1);
      };
      const uint64_t length = value(length_bytes);
      for (size_t at = 0; at <= 37; ++at) {
        std::vector<uint8_t> bytes;
        for (size_t i = 0; i < 37; ++i) {
          AppendTuple(bytes, value(offset_bytes), i == at ? length - 1 : length);
        }
        Check(bytes, 37);
        if (HasFatalFailure()) FAIL() << offset_bytes << " and " << length_bytes << " at " << at;
      }
    }
  }
}

// Rows of tuples of each layout that do not end where a vector of them does.
TEST_P(DecodeTuplesTest, TakesRowsOfEveryLayout) {
  test::SeededRandom random(20261124);
  for (size_t offset_bytes = 1; offset_bytes <= 8; ++offset_bytes) {
    for (size_t length_bytes = 1; length_bytes <= 8; ++length_bytes) {
      std::vector<uint8_t> bytes;
      for (size_t i = 0; i < 37; ++i) {
        const auto value = [&](size_t count) {
          return random() >> (64 - 7 * count) | uint64_t{1} << (7 * count - 1);
        };
        AppendTuple(bytes, value(offset_bytes), value(length_bytes));
      }
      Check(bytes, 37);
      // Again: the row before it had one layout too.
      AppendTuple(bytes, 1, 1);
      bytes.insert(bytes.end(), bytes.begin(), bytes.end() - 4);
      Check(bytes, 80);
      if (HasFatalFailure()) FAIL() << offset_bytes << " and " << length_bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, DecodeTuplesTest,
                         testing::ValuesIn(test::AsVector(simd::DecodeTuplesVariants())),
                         test::VariantName<DecodeTuplesKernels>);

}  // namespace decode_tuples_test
}  // namespace cbt
