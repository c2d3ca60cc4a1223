// Registers a benchmark for each variant that this machine can run, and for the dispatched one.
#ifndef CBT_BENCH_SUPPORT_VARIANTS_H_
#define CBT_BENCH_SUPPORT_VARIANTS_H_

#include <string>

#include "cbt/simd.h"
#include "simd/kernels.h"

namespace cbt::bench {

// Calls add(implementation name, kernels) for each variant that runs here, and again as `cbt` for
// the one in use.
template <typename Kernels, typename Add>
void ForEachVariant(std::span<const simd::Variant<Kernels>> variants, const Kernels& in_use,
                    Add add) {
  for (const auto& variant : variants) {
    if (simd::IsRunnable(variant.level)) add(SimdLevelName(variant.level), *variant.kernels);
  }
  add("cbt", in_use);
}

}  // namespace cbt::bench

#endif  // CBT_BENCH_SUPPORT_VARIANTS_H_
