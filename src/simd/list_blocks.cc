// Scalar reference of list_blocks, the list of its variants, and the choice between them.
#include "simd/list_blocks.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "simd/kernels.h"

namespace cbt::simd {
namespace scalar {
namespace {

uint64_t LoadWord(const uint8_t* bytes) noexcept {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Operations on words.
uint64_t Single(uint64_t a, uint64_t) noexcept { return a; }
uint64_t Exclusive(uint64_t a, uint64_t b) noexcept { return a ^ b; }
uint64_t AndNot(uint64_t a, uint64_t b) noexcept { return b & ~a; }
uint64_t Either(uint64_t a, uint64_t b) noexcept { return a | b; }
uint64_t Both(uint64_t a, uint64_t b) noexcept { return a & b; }

template <uint64_t (*kOperation)(uint64_t, uint64_t)>
uint64_t WordAt(const uint8_t* a, const uint8_t* b, size_t i) noexcept {
  return kOperation(LoadWord(a + i * 8), b == nullptr ? 0 : LoadWord(b + i * 8));
}

template <uint64_t (*kOperation)(uint64_t, uint64_t)>
BlockScan List(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin, unsigned shift,
               uint64_t* offsets, size_t room) noexcept {
  size_t found = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word = WordAt<kOperation>(a, b, i);
    if (found >= room && (word != 0 || i % 64 == 0)) return {i, found};
    for (; word != 0; word &= word - 1) {
      const uint64_t bit = i * 64 + static_cast<uint64_t>(__builtin_ctzll(word));
      offsets[found++] = origin + (bit << shift);
    }
  }
  return {words, found};
}

template <uint64_t (*kOperation)(uint64_t, uint64_t)>
void Fold(const uint8_t* a, const uint8_t* b, size_t words, unsigned fold, uint64_t* out) noexcept {
  std::fill_n(out, words, 0);
  for (size_t i = 0; i < words << fold; ++i) {
    for (uint64_t word = WordAt<kOperation>(a, b, i); word != 0; word &= word - 1) {
      const uint64_t bit = (i * 64 + static_cast<uint64_t>(__builtin_ctzll(word))) >> fold;
      out[bit / 64] |= uint64_t{1} << bit % 64;
    }
  }
}

template <uint64_t (*kOperation)(uint64_t, uint64_t)>
constexpr BlockKernel kKernel = {&List<kOperation>, &Fold<kOperation>};

}  // namespace

const ListBlocksKernels kListBlocks = {&kKernel<Single>, &kKernel<Exclusive>, &kKernel<AndNot>,
                                       &kKernel<Either>, &kKernel<Both>};

}  // namespace scalar

namespace {

// Several groups of words and a tail, with empty and full stretches and words of every density.
bool KnownAnswer(const ListBlocksKernels& candidate) noexcept {
  constexpr size_t kWords = 256 + 64 + 17;
  constexpr size_t kRoom = 1500;
  uint64_t a[kWords];
  uint64_t b[kWords];
  uint64_t want[kRoom + kBlockSlack];
  uint64_t got[kRoom + kBlockSlack];
  FillCheckBitmaps(a, b, kWords, 8);
  const auto* bytes_a = reinterpret_cast<const uint8_t*>(a);
  const auto* bytes_b = reinterpret_cast<const uint8_t*>(b);
  constexpr const BlockKernel* ListBlocksKernels::*kOperations[] = {
      &ListBlocksKernels::single, &ListBlocksKernels::exclusive, &ListBlocksKernels::and_not,
      &ListBlocksKernels::either, &ListBlocksKernels::both};
  for (const auto operation : kOperations) {
    const BlockKernel& expected = *(scalar::kListBlocks.*operation);
    const BlockKernel& kernel = *(candidate.*operation);
    const BlockScan first = expected.list(bytes_a, bytes_b, kWords, 7, 3, want, kRoom);
    const BlockScan scan = kernel.list(bytes_a, bytes_b, kWords, 7, 3, got, kRoom);
    if (scan.words != first.words || scan.blocks != first.blocks ||
        !std::equal(want, want + first.blocks, got)) {
      return false;
    }
    for (unsigned fold = 1; fold <= 6; ++fold) {
      const size_t words = kWords >> fold;
      expected.fold(bytes_a, bytes_b, words, fold, want);
      kernel.fold(bytes_a, bytes_b, words, fold, got);
      if (!std::equal(want, want + words, got)) return false;
    }
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(ListBlocks,
                   CBT_SCALAR_VARIANT(kListBlocks) CBT_SSE42_VARIANT(kListBlocks)
                       CBT_AVX2_VARIANT_IF(kListBlocks, &HasFastPdep)
                           CBT_AVX512_VARIANT(kListBlocks) CBT_NEON_VARIANT(kListBlocks))

}  // namespace cbt::simd
