// Body of containers for levels without compress instructions: branch-free loops that the compiler
// vectorises. Included by isa_<level>.cc inside no namespace, once. The body for AVX-512 reuses
// functions for which it has no better instructions.
#ifndef CBT_SIMD_CONTAINERS_INL_H_
#define CBT_SIMD_CONTAINERS_INL_H_

#include "simd/containers.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace containers {

// The number at `index`, at any alignment.
template <typename T>
static inline T NumberAt(const uint8_t* bytes, size_t index) noexcept {
  T number;
  __builtin_memcpy(&number, bytes + index * sizeof(T), sizeof(T));
  return number;
}
static inline uint16_t ValueAt(const uint8_t* bytes, size_t index) noexcept {
  return NumberAt<uint16_t>(bytes, index);
}
static inline uint32_t PairAt(const uint8_t* bytes, size_t index) noexcept {
  return NumberAt<uint32_t>(bytes, index);
}
static inline uint64_t WordAt(const uint8_t* bytes, size_t index) noexcept {
  return NumberAt<uint64_t>(bytes, index);
}

static bool CheckValues(const uint8_t* bytes, size_t count) noexcept {
  unsigned wrong = 0;
  for (size_t i = 1; i < count; ++i) wrong |= ValueAt(bytes, i) <= ValueAt(bytes, i - 1) ? 1 : 0;
  return wrong == 0;
}

static uint32_t CheckPairs(const uint8_t* bytes, size_t count) noexcept {
  uint32_t wrong = 0;
  uint32_t values = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong |= (PairAt(bytes, i) & 0xffff) + (PairAt(bytes, i) >> 16) > 0xffff ? 1 : 0;
    values += (PairAt(bytes, i) >> 16) + 1;
  }
  for (size_t i = 1; i < count; ++i) {
    const uint32_t end = (PairAt(bytes, i - 1) & 0xffff) + (PairAt(bytes, i - 1) >> 16);
    wrong |= (PairAt(bytes, i) & 0xffff) <= end + 1 ? 1 : 0;
  }
  return wrong == 0 ? values : 0;
}

#ifndef CBT_CONTAINERS_COMPRESS

// Converts the starts and ends (last values) of runs to extents.
static inline void Widen(const uint16_t* starts, const uint16_t* ends, size_t runs, uint64_t origin,
                         unsigned shift, uint64_t* __restrict__ offsets,
                         uint64_t* __restrict__ lengths) noexcept {
  for (size_t i = 0; i < runs; ++i) {
    offsets[i] = origin + (uint64_t{starts[i]} << shift);
    lengths[i] = (uint64_t{ends[i]} - starts[i] + 1) << shift;
  }
}

static size_t ExpandValues(const uint8_t* bytes, size_t count, uint64_t origin, unsigned shift,
                           uint64_t* offsets, uint64_t* lengths) noexcept {
  uint16_t starts[kMaxArrayValues + 1];
  uint16_t ends[kMaxArrayValues + 1];
  // Writes every value to both lists, and advances a list if the value belongs there.
  size_t runs = 0;
  size_t ended = 0;
  starts[runs++] = ValueAt(bytes, 0);
  for (size_t i = 1; i < count; ++i) {
    const unsigned before = ValueAt(bytes, i - 1);
    const unsigned value = ValueAt(bytes, i);
    const bool starts_run = value != before + 1;
    ends[ended] = static_cast<uint16_t>(before);
    ended += starts_run ? 1 : 0;
    starts[runs] = static_cast<uint16_t>(value);
    runs += starts_run ? 1 : 0;
  }
  ends[ended] = ValueAt(bytes, count - 1);
  Widen(starts, ends, runs, origin, shift, offsets, lengths);
  return runs;
}

static void ExpandPairs(const uint8_t* bytes, size_t count, uint64_t origin, unsigned shift,
                        uint64_t* __restrict__ offsets, uint64_t* __restrict__ lengths) noexcept {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t pair = PairAt(bytes, i);
    offsets[i] = origin + ((pair & 0xffff) << shift);
    lengths[i] = ((pair >> 16) + 1) << shift;
  }
}

static size_t CollectValues(const uint8_t* bytes, uint16_t* values) noexcept {
  size_t count = 0;
  for (unsigned i = 0; i < 1024; ++i) {
    for (uint64_t word = WordAt(bytes, i); word != 0; word &= word - 1) {
      values[count++] = static_cast<uint16_t>(i * 64 + unsigned(__builtin_ctzll(word)));
    }
  }
  return count;
}

}  // namespace containers

extern const ContainersKernels kContainers;
const ContainersKernels kContainers = {&containers::ExpandValues, &containers::ExpandPairs,
                                       &containers::CheckValues, &containers::CheckPairs,
                                       &containers::CollectValues};

#else

}  // namespace containers

#endif

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

#endif  // CBT_SIMD_CONTAINERS_INL_H_
