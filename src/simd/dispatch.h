// Chooses the variant of a kernel family. Not for instruction-set files.
#ifndef CBT_SIMD_DISPATCH_H_
#define CBT_SIMD_DISPATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cbt/simd.h"

namespace cbt::simd {

// One variant of a family: its level and its table of functions. Families list theirs in an
// explicit array, weakest first and kScalar always, because the linker drops self-registering
// objects from a static archive.
template <typename Kernels>
struct Variant {
  SimdLevel level;
  const Kernels* kernels;
  // False on machines where the variant runs but is slow; null: no such machines are known.
  bool (*suits)() noexcept = nullptr;
};

// True if `level` is compiled in and this machine can run it.
bool IsRunnable(SimdLevel level) noexcept;

// False on processors where pdep and pext take about a hundred cycles: AMD before Zen 3.
bool HasFastPdep() noexcept;

// The highest variant that is not above the active level, runs here, and passes `known_answer`
// (called once; compares with the scalar variant). A variant that fails, because it was miscompiled
// or misdetected, is skipped: a wrong kernel loses data, and the check costs microseconds. The
// first variant, scalar, is trusted, so there always is one.
template <typename Kernels>
const Variant<Kernels>& Choose(std::span<const Variant<Kernels>> variants,
                               bool (*known_answer)(const Kernels&) noexcept) noexcept {
  for (size_t i = variants.size(); i-- > 1;) {
    const Variant<Kernels>& variant = variants[i];
    if (variant.level <= ActiveSimdLevel() && IsRunnable(variant.level) &&
        (variant.suits == nullptr || variant.suits()) && known_answer(*variant.kernels)) {
      return variant;
    }
  }
  return variants.front();
}

// A fixed pseudo-random sequence (splitmix64) for known-answer inputs.
class CheckPattern {
 public:
  uint64_t Next() noexcept {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_ = 0;
};

}  // namespace cbt::simd

#endif  // CBT_SIMD_DISPATCH_H_
