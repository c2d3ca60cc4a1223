// Body of check_tuples for every SIMD level. Included by isa_<level>.cc inside no namespace, once.
#include <xsimd/xsimd.hpp>

#include "simd/tuples/check_tuples.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace check_tuples {

using Lanes = xsimd::batch<int64_t, CBT_ISA_ARCH>;

static inline Lanes Load(const uint64_t* from) noexcept {
  return Lanes::load_unaligned(reinterpret_cast<const int64_t*>(from));
}

// What no tuple may do, collected in the sign bits of a vector: where both values are below 2^63, a
// difference is negative if the first is less, and a sum if it is 2^63 or more. Values that are
// not, are negative themselves.
template <bool kSameSize>
static TupleCheck CheckAll(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                           const TupleRules& rules) noexcept {
  constexpr size_t kLanes = Lanes::size;
  bool sound = true;
  uint64_t bytes = 0;
  uint64_t bits = 0;
  size_t i = 0;
  const auto one = [&](uint64_t floor) {
    sound &= static_cast<int64_t>(offsets[i] | lengths[i]) >= 0 && offsets[i] >= floor &&
             lengths[i] != 0 && (!kSameSize || lengths[i] == rules.size);
    bytes += lengths[i];
    bits |= offsets[i];
    ++i;
  };
  one(rules.floor);
  if (count - i >= kLanes) {
    Lanes negative(int64_t{0});
    Lanes different(int64_t{0});
    Lanes sum(int64_t{0});
    Lanes any(int64_t{0});
    const Lanes size(static_cast<int64_t>(rules.size));
    for (; count - i >= kLanes; i += kLanes) {
      const Lanes length = Load(lengths + i);
      const Lanes offset = Load(offsets + i);
      if constexpr (kSameSize) {
        // Each length before was compared, or is that of one().
        const Lanes floor = Load(offsets + i - 1) + size;
        negative = negative | floor | offset | (offset - floor);
        different = different | (length ^ size);
      } else {
        const Lanes floor = Load(offsets + i - 1) + Load(lengths + i - 1);
        negative = negative | floor | offset | length | (offset - floor);
        negative = negative | (length - Lanes(int64_t{1}));
      }
      sum = sum + length;
      any = any | offset;
    }
    int64_t lanes[4][kLanes];
    negative.store_unaligned(lanes[0]);
    different.store_unaligned(lanes[1]);
    sum.store_unaligned(lanes[2]);
    any.store_unaligned(lanes[3]);
    for (size_t k = 0; k < kLanes; ++k) {
      sound &= lanes[0][k] >= 0 && lanes[1][k] == 0;
      bytes += static_cast<uint64_t>(lanes[2][k]);
      bits |= static_cast<uint64_t>(lanes[3][k]);
    }
  }
  while (i < count) one(offsets[i - 1] + lengths[i - 1]);
  // No tuple starts before the one before it ends: what holds for the last one holds for all.
  sound &= offsets[count - 1] < rules.capacity &&
           offsets[count - 1] + lengths[count - 1] <= rules.most_end;
  return {sound, bytes, bits};
}

static TupleCheck Check(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                        const TupleRules& rules) noexcept {
  if (count == 0) return {true, 0, 0};
  return rules.size == 0 ? CheckAll<false>(offsets, lengths, count, rules)
                         : CheckAll<true>(offsets, lengths, count, rules);
}

}  // namespace check_tuples

extern const CheckTuplesKernels kCheckTuples;
const CheckTuplesKernels kCheckTuples = {&check_tuples::Check};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE
