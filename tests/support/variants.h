// Every variant of a kernel family as a test parameter, named by its level.
#ifndef CBT_TESTS_SUPPORT_VARIANTS_H_
#define CBT_TESTS_SUPPORT_VARIANTS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cbt/simd.h"
#include "simd/dispatch.h"

namespace cbt::test {

// Base of the suites. A variant that this machine can't run is reported as skipped, never as
// passed.
template <typename Kernels>
class VariantTest : public testing::TestWithParam<simd::Variant<Kernels>> {
 protected:
  void SetUp() override {
    if (!simd::IsRunnable(this->GetParam().level)) {
      GTEST_SKIP() << "this machine can't run " << SimdLevelName(this->GetParam().level);
    }
  }
  const Kernels& kernels() const { return *this->GetParam().kernels; }
};

template <typename Kernels>
std::vector<simd::Variant<Kernels>> AsVector(std::span<const simd::Variant<Kernels>> variants) {
  return {variants.begin(), variants.end()};
}

template <typename Kernels>
std::string VariantName(const testing::TestParamInfo<simd::Variant<Kernels>>& info) {
  return SimdLevelName(info.param.level);
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_VARIANTS_H_
