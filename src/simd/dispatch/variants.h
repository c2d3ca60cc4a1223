// How the variant of a kernel family is chosen, for everything but instruction-set files.
#ifndef CBT_SIMD_DISPATCH_VARIANTS_H_
#define CBT_SIMD_DISPATCH_VARIANTS_H_

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

// Fills two bitmaps with random words that are unrelated, opposite, equal or differ in one bit.
// Words 64 to 127 of both are empty; the `full` words after them are full in `a` alone.
inline void FillCheckBitmaps(uint64_t* a, uint64_t* b, size_t words, size_t full) noexcept {
  CheckPattern pattern;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t kind = pattern.Next() % 4;
    a[i] = pattern.Next();
    b[i] = kind == 0 ? pattern.Next() : kind == 1 ? ~a[i] : a[i];
    if (kind == 2) b[i] ^= uint64_t{1} << (pattern.Next() % 64);
    if (i >= 64 && i < 128) a[i] = b[i] = 0;
    if (i >= 128 && i < 128 + full) a[i] = ~(b[i] = 0);
  }
}

}  // namespace cbt::simd

// Elements of a family's list of variants: nothing if the level is not compiled in.
#define CBT_SCALAR_VARIANT(name) {SimdLevel::kScalar, &scalar::name},
#ifdef CBT_HAVE_SSE42
#define CBT_SSE42_VARIANT(name) {SimdLevel::kSse42, &sse42::name},
#else
#define CBT_SSE42_VARIANT(name)
#endif
#ifdef CBT_HAVE_AVX2
#define CBT_AVX2_VARIANT(name) {SimdLevel::kAvx2, &avx2::name},
#define CBT_AVX2_VARIANT_IF(name, suits) {SimdLevel::kAvx2, &avx2::name, suits},
#else
#define CBT_AVX2_VARIANT(name)
#define CBT_AVX2_VARIANT_IF(name, suits)
#endif
#ifdef CBT_HAVE_AVX512
#define CBT_AVX512_VARIANT(name) {SimdLevel::kAvx512, &avx512::name},
#else
#define CBT_AVX512_VARIANT(name)
#endif
#ifdef CBT_HAVE_NEON
#define CBT_NEON_VARIANT(name) {SimdLevel::kNeon, &neon::name},
#else
#define CBT_NEON_VARIANT(name)
#endif
#define CBT_EVERY_VARIANT(name) \
  CBT_SCALAR_VARIANT(name)      \
  CBT_SSE42_VARIANT(name) CBT_AVX2_VARIANT(name) CBT_AVX512_VARIANT(name) CBT_NEON_VARIANT(name)

// The entry points of a family: the chosen variant's functions, its level, and all variants.
#define CBT_DECLARE_KERNELS(Family)         \
  const Family##Kernels& Family() noexcept; \
  SimdLevel Family##Level() noexcept;       \
  std::span<const Variant<Family##Kernels>> Family##Variants() noexcept;

// Defines them. The arguments after `Family` are its variants, weakest first; KnownAnswer() of the
// same file judges them.
#define CBT_DEFINE_KERNELS(Family, ...)                                  \
  namespace {                                                            \
  constexpr Variant<Family##Kernels> kVariants[] = {__VA_ARGS__};        \
  const Variant<Family##Kernels>& Chosen() noexcept {                    \
    static const Variant<Family##Kernels>& chosen =                      \
        Choose<Family##Kernels>(kVariants, &KnownAnswer);                \
    return chosen;                                                       \
  }                                                                      \
  }                                                                      \
  const Family##Kernels& Family() noexcept { return *Chosen().kernels; } \
  SimdLevel Family##Level() noexcept { return Chosen().level; }          \
  std::span<const Variant<Family##Kernels>> Family##Variants() noexcept { return kVariants; }

#endif  // CBT_SIMD_DISPATCH_VARIANTS_H_
