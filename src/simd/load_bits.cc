// Scalar reference of load_bits, the list of its variants, and the choice between them.
#include "simd/load_bits.h"

#include <cstring>

#include "simd/kernels.h"

namespace cbt::simd {
namespace scalar {
namespace {

// Reverses the bits of each byte.
uint64_t ReverseBytes(uint64_t word) noexcept {
  constexpr uint64_t kOdd = 0x5555555555555555u;
  constexpr uint64_t kPairs = 0x3333333333333333u;
  constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0fu;
  word = (word >> 1 & kOdd) | (word & kOdd) << 1;
  word = (word >> 2 & kPairs) | (word & kPairs) << 2;
  return (word >> 4 & kNibbles) | (word & kNibbles) << 4;
}

void Load(const uint8_t* from, unsigned shift, bool reverse, bool invert, uint64_t* out,
          size_t words) noexcept {
  for (size_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, from + i * 8, sizeof(word));
    if (reverse) word = ReverseBytes(word);
    if (shift != 0) {
      uint64_t next = from[i * 8 + 8];
      if (reverse) next = ReverseBytes(next);
      word = word >> shift | next << (64 - shift);
    }
    out[i] = invert ? ~word : word;
  }
}

}  // namespace

const LoadBitsKernels kLoadBits = {&Load};

}  // namespace scalar

namespace {

// Every layout, with the vector loop and its tail.
bool KnownAnswer(const LoadBitsKernels& candidate) noexcept {
  constexpr size_t kWords = 37;
  uint8_t from[kWords * 8 + 1];
  CheckPattern pattern;
  for (uint8_t& byte : from) byte = static_cast<uint8_t>(pattern.Next());
  for (unsigned layout = 0; layout < 32; ++layout) {
    uint64_t want[kWords];
    uint64_t got[kWords];
    const bool reverse = (layout & 8) != 0;
    const bool invert = (layout & 16) != 0;
    scalar::kLoadBits.load(from, layout % 8, reverse, invert, want, kWords);
    candidate.load(from, layout % 8, reverse, invert, got, kWords);
    if (std::memcmp(got, want, sizeof(want)) != 0) return false;
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(LoadBits, CBT_EVERY_VARIANT(kLoadBits))

}  // namespace cbt::simd
