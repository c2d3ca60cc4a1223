// Scalar reference of compare_blocks, the list of its variants, and the choice between them.
#include "simd/compare_blocks.h"

#include <cstring>

#include "simd/kernels.h"

namespace cbt::simd {
namespace scalar {
namespace {

// Calls differs(begin, length) for each block and stores the results as bits.
template <typename Differs>
void Blocks(Differs differs, size_t bytes, size_t block_size, uint64_t* out) noexcept {
  size_t block = 0;
  for (size_t begin = 0; begin < bytes; ++block) {
    const size_t length = bytes - begin < block_size ? bytes - begin : block_size;
    if (block % 64 == 0) out[block / 64] = 0;
    out[block / 64] |= uint64_t{differs(begin, length)} << (block % 64);
    begin += length;
  }
}

void Compare(const uint8_t* a, const uint8_t* b, size_t bytes, size_t block_size,
             uint64_t* changed) noexcept {
  Blocks(
      [=](size_t begin, size_t length) { return std::memcmp(a + begin, b + begin, length) != 0; },
      bytes, block_size, changed);
}

void NonZero(const uint8_t* data, size_t bytes, size_t block_size, uint64_t* nonzero) noexcept {
  Blocks(
      [=](size_t begin, size_t length) {
        for (size_t i = 0; i < length; ++i) {
          if (data[begin + i] != 0) return true;
        }
        return false;
      },
      bytes, block_size, nonzero);
}

}  // namespace

const CompareBlocksKernels kCompareBlocks = {&Compare, &NonZero};

}  // namespace scalar

namespace {

// A difference at every distance from a block's start, and a partial last block.
bool KnownAnswer(const CompareBlocksKernels& candidate) noexcept {
  constexpr size_t kBlock = 512;
  constexpr size_t kBytes = 8 * kBlock + 77;
  uint8_t a[kBytes];
  uint8_t b[kBytes];
  CheckPattern pattern;
  for (size_t round = 0; round < kBlock; ++round) {
    std::memset(b, 0, kBytes);
    for (uint8_t& byte : a) byte = 0;
    for (size_t block = round % 2; block <= 8; block += 2) {
      const size_t at = block * kBlock + round;
      if (at < kBytes) a[at] = static_cast<uint8_t>(pattern.Next() % 255 + 1);
    }
    uint64_t want = 0;
    uint64_t compared = ~uint64_t{0};
    uint64_t nonzero = ~uint64_t{0};
    scalar::kCompareBlocks.compare(a, b, kBytes, kBlock, &want);
    candidate.compare(a, b, kBytes, kBlock, &compared);
    candidate.nonzero(a, kBytes, kBlock, &nonzero);
    if (compared != want || nonzero != want) return false;
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(CompareBlocks, CBT_EVERY_VARIANT(kCompareBlocks))

}  // namespace cbt::simd
