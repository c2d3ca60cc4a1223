// All variants of a kernel family as test parameters, named by level.
#ifndef CBT_TESTS_SUPPORT_VARIANTS_H_
#define CBT_TESTS_SUPPORT_VARIANTS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cbt/simd.h"
#include "simd/kernels.h"
#include "tests/support/figures.h"

namespace cbt::test {

// Base of the suites. A variant that this machine cannot run is skipped by name, never passed. At
// the end of a suite the number of comparisons is printed as a figure.
template <typename Kernels>
class VariantTest : public testing::TestWithParam<simd::Variant<Kernels>> {
 protected:
  void SetUp() override {
    if (!simd::IsRunnable(this->GetParam().level)) {
      GTEST_SKIP() << "this machine can't run " << SimdLevelName(this->GetParam().level);
    }
    levels_.insert(this->GetParam().level);
  }
  static void TearDownTestSuite() {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
    const std::string name = FigureName(suite.name());
    PrintFigure("r3_" + name + "_variants", levels_.size());
    PrintFigure("r3_" + name + "_inputs", calls_);
    PrintFigure("r3_" + name + "_failed", suite.failed_test_count());
  }
  // For one call whose result the test compares; it is counted.
  const Kernels& kernels() const {
    ++calls_;
    return *this->GetParam().kernels;
  }

 private:
  // "Variants/CountBitsTest" as "count_bits_test".
  static std::string FigureName(std::string_view suite) {
    suite.remove_prefix(suite.rfind('/') + 1);
    std::string name;
    for (const char c : suite) {
      const bool upper = c >= 'A' && c <= 'Z';
      if (upper && !name.empty()) name.push_back('_');
      name.push_back(upper ? static_cast<char>(c - 'A' + 'a') : c);
    }
    return name;
  }

  static inline std::set<SimdLevel> levels_;
  static inline uint64_t calls_ = 0;
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
