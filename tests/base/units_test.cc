// Sizes have the values they name, and overflowing ones do not compile.
#include "cbt/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

namespace cbt {
namespace units_test {

using namespace units;  // NOLINT(google-build-using-namespace)

TEST(Units, AreExact) {
  EXPECT_EQ(5_GiB, uint64_t{5} * 1024 * 1024 * 1024);
  EXPECT_EQ(1_KiB, kKiB);
  EXPECT_EQ(1_MiB, 1024 * kKiB);
  EXPECT_EQ(1_GiB, 1024 * kMiB);
  EXPECT_EQ(1_TiB, 1024 * kGiB);
  EXPECT_EQ(1_PiB, 1024 * kTiB);
  EXPECT_EQ(1_EiB, 1024 * kPiB);
  EXPECT_EQ(15_EiB, UINT64_MAX - kEiB + 1);
}

// That code does not compile can only be tested with a requires-expression.
template <unsigned long long kCount>
concept FitsEiB = requires {
  typename std::integral_constant<uint64_t, internal::SizeOf(kCount, kEiB)>;
};
static_assert(FitsEiB<15>);
static_assert(!FitsEiB<16>);

}  // namespace units_test
}  // namespace cbt
