// Scalar reference of count_bits, the list of its variants, and the choice between them.
#include "simd/count_bits.h"

#include <bit>
#include <cstring>

#include "simd/kernels.h"

namespace cbt::simd {
namespace scalar {
namespace {

uint64_t LoadWord(const uint8_t* bytes) noexcept {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

template <typename WordAt>
BitCounts Count(WordAt word_at, size_t words, uint64_t open) noexcept {
  BitCounts counts{0, 0, open};
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = word_at(i);
    counts.ones += static_cast<uint64_t>(std::popcount(word));
    counts.starts += static_cast<uint64_t>(std::popcount(word & ~(word << 1 | counts.open)));
    counts.open = word >> 63;
  }
  return counts;
}

BitCounts Single(const uint8_t* a, const uint8_t*, size_t words, uint64_t open) noexcept {
  return Count([=](size_t i) { return LoadWord(a + i * 8); }, words, open);
}

BitCounts Exclusive(const uint8_t* a, const uint8_t* b, size_t words, uint64_t open) noexcept {
  return Count([=](size_t i) { return LoadWord(a + i * 8) ^ LoadWord(b + i * 8); }, words, open);
}

BitCounts AndNot(const uint8_t* a, const uint8_t* b, size_t words, uint64_t open) noexcept {
  return Count([=](size_t i) { return LoadWord(b + i * 8) & ~LoadWord(a + i * 8); }, words, open);
}

BitCounts Either(const uint8_t* a, const uint8_t* b, size_t words, uint64_t open) noexcept {
  return Count([=](size_t i) { return LoadWord(a + i * 8) | LoadWord(b + i * 8); }, words, open);
}

BitCounts Both(const uint8_t* a, const uint8_t* b, size_t words, uint64_t open) noexcept {
  return Count([=](size_t i) { return LoadWord(a + i * 8) & LoadWord(b + i * 8); }, words, open);
}

}  // namespace

const CountBitsKernels kCountBits = {&Single, &Exclusive, &AndNot, &Either, &Both};

}  // namespace scalar

namespace {

// The vector loop and its tail, with words of every density.
bool KnownAnswer(const CountBitsKernels& candidate) noexcept {
  constexpr size_t kWords = 301;
  uint64_t a[kWords];
  uint64_t b[kWords];
  CheckPattern pattern;
  for (size_t i = 0; i < kWords; ++i) {
    a[i] = i % 7 < 2 ? ~uint64_t{0} : pattern.Next();
    b[i] = i % 5 == 0 ? a[i] : pattern.Next() & pattern.Next();
  }
  const auto* bytes_a = reinterpret_cast<const uint8_t*>(a);
  const auto* bytes_b = reinterpret_cast<const uint8_t*>(b);
  constexpr CountBitsFn* CountBitsKernels::*kOperations[] = {
      &CountBitsKernels::single, &CountBitsKernels::exclusive, &CountBitsKernels::and_not,
      &CountBitsKernels::either, &CountBitsKernels::both};
  for (const auto operation : kOperations) {
    const BitCounts want = (scalar::kCountBits.*operation)(bytes_a, bytes_b, kWords, 1);
    const BitCounts got = (candidate.*operation)(bytes_a, bytes_b, kWords, 1);
    if (got.ones != want.ones || got.starts != want.starts || got.open != want.open) return false;
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(CountBits, CBT_EVERY_VARIANT(kCountBits))

}  // namespace cbt::simd
