#include "kube/watch/back_off.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>

namespace cbt::kube {
namespace back_off_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr BackOff::Clock::time_point kStart{std::chrono::hours(5)};

TEST(BackOffTest, DoublesUpToItsMaximumAndAddsARandomPart) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    BackOff back_off({}, seed);
    BackOff::Clock::time_point now = kStart;
    for (const int64_t want : {800, 1600, 3200, 6400, 12800, 25600, 30000, 30000}) {
      const milliseconds wait = back_off.Next(now);
      EXPECT_GE(wait, milliseconds(want));
      EXPECT_LE(wait, milliseconds(2 * want));
      now += wait;
    }
  }
}

TEST(BackOffTest, BeginsAgainAfterQuietTime) {
  BackOff back_off({.jitter = 0}, 1);
  EXPECT_EQ(back_off.Next(kStart), milliseconds(800));
  EXPECT_EQ(back_off.Next(kStart + seconds(119)), milliseconds(1600));
  EXPECT_EQ(back_off.Next(kStart + seconds(119 + 119)), milliseconds(3200));
  EXPECT_EQ(back_off.Next(kStart + seconds(119 + 119 + 120)), milliseconds(800));
}

TEST(BackOffTest, ClientsDoNotWaitTheSameTime) {
  std::set<int64_t> waits;
  for (int i = 0; i < 50; ++i) waits.insert(BackOff({}).Next(kStart).count());
  EXPECT_GT(waits.size(), 20U);
}

TEST(BackOffTest, NeverSpins) {
  BackOff back_off({.first = milliseconds(0), .max = milliseconds(-1), .factor = 0, .jitter = -3},
                   1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(back_off.Next(kStart), milliseconds(1));
}

}  // namespace back_off_test
}  // namespace cbt::kube
