#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace compare_blocks_test {

using simd::CompareBlocksKernels;
using test::GuardedMemory;

constexpr uint64_t kCanary = 0xfeedfacecafebeefu;

class CompareBlocksTest : public test::VariantTest<CompareBlocksKernels> {
 protected:
  // Runs both kernels, `a` against `b` and `a ^ b` against zero, and compares with a byte loop.
  // Words around the output must stay unchanged.
  void Check(const uint8_t* a, const uint8_t* b, size_t bytes, size_t block_size) {
    const size_t blocks = (bytes + block_size - 1) / block_size;
    const size_t words = (blocks + 63) / 64;
    std::vector<uint64_t> want(words, 0);
    GuardedMemory difference(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      difference.data()[i] = a[i] ^ b[i];
      if (a[i] != b[i]) want[i / block_size / 64] |= uint64_t{1} << (i / block_size % 64);
    }
    want.insert(want.begin(), kCanary);
    want.push_back(kCanary);
    std::vector<uint64_t> got(words + 2, kCanary);
    kernels().compare(a, b, bytes, block_size, got.data() + 1);
    ASSERT_EQ(got, want) << bytes << " bytes, block " << block_size;
    got.assign(words + 2, kCanary);
    kernels().nonzero(difference.data(), bytes, block_size, got.data() + 1);
    ASSERT_EQ(got, want) << bytes << " bytes, block " << block_size;
  }
};

TEST_P(CompareBlocksTest, FindsADifferenceInAnyByte) {
  constexpr size_t kBlock = 512;
  constexpr size_t kBytes = 2 * kBlock + 301;
  GuardedMemory a(kBytes);
  GuardedMemory b(kBytes, GuardedMemory::Guard::kBefore);
  for (size_t i = 0; i < kBytes; ++i) a.data()[i] = b.data()[i] = static_cast<uint8_t>(i * 31);
  Check(a.data(), b.data(), kBytes, kBlock);
  for (size_t i = 0; i < kBytes; ++i) {
    SCOPED_TRACE(absl::StrCat("a difference in byte ", i));
    a.data()[i] ^= static_cast<uint8_t>(1 << (i % 8));
    Check(a.data(), b.data(), kBytes, kBlock);
    if (HasFatalFailure()) return;
    a.data()[i] = b.data()[i];
  }
}

TEST_P(CompareBlocksTest, MatchesByteByByteForEveryLengthAndAlignment) {
  test::SeededRandom random(1);
  for (size_t bytes = 0; bytes <= 700; ++bytes) {
    const size_t shift = bytes % 64;
    GuardedMemory a(bytes + shift, GuardedMemory::Guard::kBefore);
    GuardedMemory b(bytes);
    for (size_t i = 0; i < bytes; ++i) b.data()[i] = static_cast<uint8_t>(random());
    std::memcpy(a.data() + shift, b.data(), bytes);
    for (int changes = 0; changes < 4; ++changes) {
      SCOPED_TRACE(absl::StrCat(changes, " changes, shift ", shift));
      for (const size_t block_size : {size_t{1}, size_t{7}, size_t{64}, size_t{512}}) {
        Check(a.data() + shift, b.data(), bytes, block_size);
        if (HasFatalFailure()) return;
      }
      if (bytes > 0) a.data()[shift + random() % bytes] ^= 0x80;
    }
  }
}

TEST_P(CompareBlocksTest, MatchesByteByByteForEveryBlockSize) {
  test::SeededRandom random(2);
  constexpr size_t kBytes = (size_t{1} << 18) - 3;
  std::vector<uint8_t> a(kBytes);
  std::vector<uint8_t> b(kBytes);
  for (size_t block_size = 512; block_size <= kBytes * 2; block_size *= 2) {
    for (int round = 0; round < 4; ++round) {
      SCOPED_TRACE(absl::StrCat("round ", round));
      for (size_t i = 0; i < kBytes; ++i) a[i] = b[i] = static_cast<uint8_t>(random());
      for (uint64_t i = random() % 100; i > 0; --i) b[random() % kBytes] ^= 1;
      Check(a.data(), b.data(), kBytes, block_size);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, CompareBlocksTest,
                         testing::ValuesIn(test::AsVector(simd::CompareBlocksVariants())),
                         test::VariantName<CompareBlocksKernels>);

}  // namespace compare_blocks_test
}  // namespace cbt
