// Body of check_tuples for every SIMD level. Included by isa_<level>.cc inside no namespace, once.
#include <xsimd/xsimd.hpp>

#include "simd/tuples/check_tuples.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace check_tuples {

// Signed: all values are below 2^63, and most machines can only compare signed numbers.
using Lanes = xsimd::batch<int64_t, CBT_ISA_ARCH>;

static inline Lanes Load(const uint64_t* from) noexcept {
  return Lanes::load_unaligned(reinterpret_cast<const int64_t*>(from));
}

static TupleCheck Check(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                        const TupleRules& rules) noexcept {
  constexpr size_t kLanes = Lanes::size;
  bool sound = true;
  uint64_t bytes = 0;
  size_t i = 0;
  const auto one = [&](uint64_t floor) {
    const uint64_t end = offsets[i] + lengths[i];
    sound &= offsets[i] >= floor && offsets[i] < rules.capacity && end <= rules.most_end &&
             lengths[i] != 0 && (rules.size == 0 || lengths[i] == rules.size);
    bytes += lengths[i];
    ++i;
  };
  if (count > 0) one(rules.floor);
  if (count - i >= kLanes) {
    const Lanes capacity(static_cast<int64_t>(rules.capacity));
    const Lanes most_end(static_cast<int64_t>(rules.most_end));
    // If no size is required, any size up to INT64_MAX passes.
    const Lanes least(static_cast<int64_t>(rules.size == 0 ? 1 : rules.size));
    const Lanes most(rules.size == 0 ? INT64_MAX : static_cast<int64_t>(rules.size));
    const Lanes zero(int64_t{0});
    Lanes sum(int64_t{0});
    xsimd::batch_bool<int64_t, CBT_ISA_ARCH> bad(false);
    for (; count - i >= kLanes; i += kLanes) {
      const Lanes offset = Load(offsets + i);
      const Lanes length = Load(lengths + i);
      const Lanes floor = Load(offsets + i - 1) + Load(lengths + i - 1);
      const Lanes end = offset + length;
      // A sum of 2^63 or more is negative.
      bad = bad || offset < floor || floor < zero || offset >= capacity || end > most_end ||
            end < zero || length < least || length > most;
      sum = sum + length;
    }
    sound &= !xsimd::any(bad);
    int64_t lanes[kLanes];
    sum.store_unaligned(lanes);
    for (const int64_t lane : lanes) bytes += static_cast<uint64_t>(lane);
  }
  while (i < count) one(offsets[i - 1] + lengths[i - 1]);
  return {sound, bytes};
}

}  // namespace check_tuples

extern const CheckTuplesKernels kCheckTuples;
const CheckTuplesKernels kCheckTuples = {&check_tuples::Check};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE
