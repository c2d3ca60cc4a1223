// Body of compare_blocks for every SIMD level. Included by isa_<level>.cc inside no namespace,
// once.
#include <xsimd/xsimd.hpp>

#include "simd/compare_blocks.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace compare_blocks {

using Lanes = xsimd::batch<uint64_t, CBT_ISA_ARCH>;
constexpr size_t kVector = Lanes::size * 8;

static inline Lanes Load(const uint8_t* bytes) noexcept {
  return Lanes::load_unaligned(reinterpret_cast<const uint64_t*>(bytes));
}

struct Pair {
  const uint8_t* a;
  const uint8_t* b;
  Lanes Difference(size_t at) const noexcept { return Load(a + at) ^ Load(b + at); }
  bool ByteDiffers(size_t at) const noexcept { return a[at] != b[at]; }
  void Prefetch(size_t at) const noexcept {
    for (size_t line = 0; line < 4 * kVector; line += 64) {
      __builtin_prefetch(a + at + line);
      __builtin_prefetch(b + at + line);
    }
  }
};

struct AgainstZero {
  const uint8_t* data;
  Lanes Difference(size_t at) const noexcept { return Load(data + at); }
  bool ByteDiffers(size_t at) const noexcept { return data[at] != 0; }
  void Prefetch(size_t at) const noexcept {
    for (size_t line = 0; line < 4 * kVector; line += 64) __builtin_prefetch(data + at + line);
  }
};

// True if any of the bytes [begin, end) differ.
template <typename Input>
static inline bool Differs(const Input& input, size_t begin, size_t end) noexcept {
  size_t at = begin;
  // One branch per four vectors: equal data, the common case, runs at the speed of the loads.
  for (; end - at >= 4 * kVector; at += 4 * kVector) {
    const Lanes low = input.Difference(at) | input.Difference(at + kVector);
    const Lanes high = input.Difference(at + 2 * kVector) | input.Difference(at + 3 * kVector);
    if (xsimd::any((low | high) != Lanes(uint64_t{0}))) return true;
  }
  for (; end - at >= kVector; at += kVector) {
    if (xsimd::any(input.Difference(at) != Lanes(uint64_t{0}))) return true;
  }
  for (; at < end; ++at) {
    if (input.ByteDiffers(at)) return true;
  }
  return false;
}

template <typename Input>
static inline void Blocks(const Input& input, size_t bytes, size_t block_size,
                          uint64_t* out) noexcept {
  uint64_t word = 0;
  size_t bit = 0;
  for (size_t begin = 0; begin < bytes;) {
    const size_t end = bytes - begin < block_size ? bytes : begin + block_size;
    // A difference may end this block early, before the hardware prefetches the next one.
    if (bytes - end >= 4 * kVector) input.Prefetch(end);
    word |= uint64_t{Differs(input, begin, end)} << bit;
    begin = end;
    if (++bit == 64) {
      *out++ = word;
      word = 0;
      bit = 0;
    }
  }
  if (bit != 0) *out = word;
}

static void Compare(const uint8_t* a, const uint8_t* b, size_t bytes, size_t block_size,
                    uint64_t* changed) noexcept {
  Blocks(Pair{a, b}, bytes, block_size, changed);
}

static void NonZero(const uint8_t* data, size_t bytes, size_t block_size,
                    uint64_t* nonzero) noexcept {
  Blocks(AgainstZero{data}, bytes, block_size, nonzero);
}

}  // namespace compare_blocks

extern const CompareBlocksKernels kCompareBlocks;
const CompareBlocksKernels kCompareBlocks = {&compare_blocks::Compare, &compare_blocks::NonZero};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE
