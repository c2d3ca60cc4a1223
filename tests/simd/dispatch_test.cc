#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "cbt/simd.h"
#include "simd/kernels.h"

namespace cbt {
namespace dispatch_test {

bool Available(SimdLevel level) {
  const auto levels = AvailableSimdLevels();
  return std::find(levels.begin(), levels.end(), level) != levels.end();
}

TEST(DispatchTest, ScalarIsAlwaysThereAndLevelsAscend) {
  const auto levels = AvailableSimdLevels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), SimdLevel::kScalar);
  EXPECT_TRUE(std::is_sorted(levels.begin(), levels.end()));
  EXPECT_TRUE(Available(ActiveSimdLevel()));
}

TEST(DispatchTest, EveryFamilyRunsTheStrongestVariantThatTheActiveLevelAllows) {
  std::set<std::string> families;
  for (const KernelInfo& kernel : ActiveKernels()) {
    EXPECT_TRUE(families.insert(kernel.family).second) << kernel.family;
  }
  EXPECT_GE(families.size(), 8u);
  const auto strongest = [](const auto& variants) {
    SimdLevel best = SimdLevel::kScalar;
    for (const auto& variant : variants) {
      if (variant.suits != nullptr && !variant.suits()) continue;
      if (variant.level <= ActiveSimdLevel() && Available(variant.level)) best = variant.level;
    }
    return best;
  };
  EXPECT_EQ(simd::ExtractRunsLevel(), strongest(simd::ExtractRunsVariants()));
  EXPECT_EQ(simd::CompareBlocksLevel(), strongest(simd::CompareBlocksVariants()));
  EXPECT_EQ(simd::CountBitsLevel(), strongest(simd::CountBitsVariants()));
  EXPECT_EQ(simd::LoadBitsLevel(), strongest(simd::LoadBitsVariants()));
  EXPECT_EQ(simd::ListBlocksLevel(), strongest(simd::ListBlocksVariants()));
  EXPECT_EQ(simd::EncodeTuplesLevel(), strongest(simd::EncodeTuplesVariants()));
  EXPECT_EQ(simd::DecodeTuplesLevel(), strongest(simd::DecodeTuplesVariants()));
  EXPECT_EQ(simd::CheckTuplesLevel(), strongest(simd::CheckTuplesVariants()));
  EXPECT_EQ(simd::DigestTuplesLevel(), strongest(simd::DigestTuplesVariants()));
  EXPECT_EQ(simd::SortedExtentsLevel(), strongest(simd::SortedExtentsVariants()));
}

// ctest runs this once for each level, with CBT_SIMD set to it.
TEST(DispatchTest, ForcedLevelIsTheOneThatRuns) {
  const char* forced = std::getenv("CBT_TEST_FORCED");
  if (forced == nullptr) GTEST_SKIP() << "no level is forced in this run";
  for (const SimdLevel level : AvailableSimdLevels()) {
    if (std::string(forced) != SimdLevelName(level)) continue;
    EXPECT_TRUE(SimdRequestHonoured());
    EXPECT_EQ(ActiveSimdLevel(), level);
    for (const KernelInfo& kernel : ActiveKernels()) EXPECT_LE(kernel.level, level);
    EXPECT_EQ(simd::ExtractRunsLevel(), level);
    EXPECT_EQ(simd::CompareBlocksLevel(), level);
    return;
  }
  EXPECT_FALSE(SimdRequestHonoured());
  EXPECT_EQ(ActiveSimdLevel(), SimdLevel::kScalar);
}

// A variant that gives a wrong answer is skipped.
struct FakeKernels {
  int answer;
};
constexpr FakeKernels kRight{42};
constexpr FakeKernels kWrong{41};

TEST(DispatchTest, VariantThatFailsItsKnownAnswerIsPassedOver) {
  const SimdLevel best = AvailableSimdLevels().back();
  const simd::Variant<FakeKernels> variants[] = {{SimdLevel::kScalar, &kRight}, {best, &kWrong}};
  const auto& chosen = simd::Choose<FakeKernels>(
      variants, +[](const FakeKernels& kernels) noexcept { return kernels.answer == 42; });
  EXPECT_EQ(chosen.level, SimdLevel::kScalar);
}

}  // namespace dispatch_test
}  // namespace cbt
