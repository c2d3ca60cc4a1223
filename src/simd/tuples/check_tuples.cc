// Scalar reference of check_tuples, the list of its variants, and the choice between them.
#include "simd/tuples/check_tuples.h"

#include "simd/dispatch/variants.h"

namespace cbt::simd {
namespace scalar {
namespace {

TupleCheck Check(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                 const TupleRules& rules) noexcept {
  TupleCheck check{true, 0, 0};
  uint64_t floor = rules.floor;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t end = offsets[i] + lengths[i];
    check.sound = check.sound && (offsets[i] | lengths[i]) >> 63 == 0 && offsets[i] >= floor &&
                  offsets[i] < rules.capacity && end <= rules.most_end && lengths[i] != 0 &&
                  (rules.size == 0 || lengths[i] == rules.size);
    check.bytes += lengths[i];
    check.offset_bits |= offsets[i];
    floor = end;
  }
  return check;
}

}  // namespace

const CheckTuplesKernels kCheckTuples = {&Check};

}  // namespace scalar

namespace {

// Sound tuples, then one fault at a time.
bool KnownAnswer(const CheckTuplesKernels& candidate) noexcept {
  constexpr size_t kCount = 21;
  for (size_t fault = 0; fault <= 3 * kCount; ++fault) {
    uint64_t offsets[kCount];
    uint64_t lengths[kCount];
    for (size_t i = 0; i < kCount; ++i) {
      offsets[i] = 10 * i;
      lengths[i] = 10;
    }
    if (fault % 3 == 0) lengths[fault / 3 % kCount] = fault == 3 * kCount ? 10 : 0;
    if (fault % 3 == 1) lengths[fault / 3] = 11;
    if (fault % 3 == 2) offsets[fault / 3] -= 1;
    for (const uint64_t size : {uint64_t{0}, uint64_t{10}}) {
      const TupleRules rules{0, 10 * kCount, 10 * kCount, size};
      const TupleCheck want = scalar::kCheckTuples.check(offsets, lengths, kCount, rules);
      const TupleCheck got = candidate.check(offsets, lengths, kCount, rules);
      if (got.sound != want.sound || got.bytes != want.bytes ||
          got.offset_bits != want.offset_bits) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(CheckTuples, CBT_EVERY_VARIANT(kCheckTuples))

}  // namespace cbt::simd
