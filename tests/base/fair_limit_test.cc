#include "base/fair_limit.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace cbt::test::fair_limit_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How many of `tries` requests are served, spread evenly over a second.
int Served(FairLimit& limit, const std::string& user, int tries,
           FairLimit::Clock::time_point& now) {
  int served = 0;
  for (int i = 0; i < tries; ++i) {
    now += std::chrono::nanoseconds(seconds(1)) / tries;
    if (!limit.Take(user, now).has_value()) ++served;
  }
  return served;
}

TEST(FairLimit, A10TurnsAwayWhoAsksTooOften) {
  FairLimit limit(10, 20);
  FairLimit::Clock::time_point now{seconds(100)};
  int burst = 0;
  while (!limit.Take("a", now).has_value()) ++burst;
  EXPECT_EQ(burst, 20);
  const auto wait = limit.Take("a", now);
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(*wait, seconds(1));
  // Tokens are fractions: the last one may be short of a billionth.
  EXPECT_NEAR(Served(limit, "a", 100, now), 10, 1);
  now += *wait;
  EXPECT_FALSE(limit.Take("a", now).has_value());
}

TEST(FairLimit, A10OneUserTakesNothingFromAnother) {
  FairLimit limit(10, 20);
  FairLimit::Clock::time_point now{seconds(100)};
  while (!limit.Take("greedy", now).has_value()) {
  }
  // It goes on asking; the other gets all that it asks for, up to its half.
  int modest = 0;
  int greedy = 0;
  for (int i = 0; i < 2000; ++i) {
    now += milliseconds(5);
    if (!limit.Take("greedy", now).has_value()) ++greedy;
    if (i % 50 == 0 && !limit.Take("modest", now).has_value()) ++modest;
  }
  EXPECT_EQ(modest, 40);
  // Ten seconds at half of ten requests a second.
  EXPECT_GE(greedy, 48);
  EXPECT_LE(greedy, 62);
}

TEST(FairLimit, WhoIsSilentCountsNoMore) {
  FairLimit limit(10, 10);
  FairLimit::Clock::time_point now{seconds(100)};
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(limit.Take(std::to_string(i), now).has_value());
  now += seconds(11);
  EXPECT_NEAR(Served(limit, "a", 1000, now), 20, 1);
}

TEST(FairLimit, ManyUsersTakeBoundedMemory) {
  FairLimit limit(1000, 1000);
  const FairLimit::Clock::time_point now{seconds(100)};
  for (size_t i = 0; i < 10 * FairLimit::kMaxUsers; ++i) {
    EXPECT_FALSE(limit.Take(std::to_string(i), now).has_value());
  }
  EXPECT_LE(limit.users(), FairLimit::kMaxUsers);
}

TEST(FairLimit, IsSpentSaysWhatTakeWouldAndTakesNothing) {
  FairLimit limit(10, 3);
  const FairLimit::Clock::time_point begin{seconds(100)};
  EXPECT_FALSE(limit.IsSpent("a", begin));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 10; ++j) EXPECT_FALSE(limit.IsSpent("a", begin));
    EXPECT_FALSE(limit.Take("a", begin).has_value());
  }
  EXPECT_TRUE(limit.IsSpent("a", begin));
  EXPECT_FALSE(limit.IsSpent("b", begin));
  EXPECT_FALSE(limit.IsSpent("a", begin + milliseconds(150)));
}

// At the very moment that a whole token is there, both serve the request.
TEST(FairLimit, IsSpentAndTakeAgreeToTheMicrosecond) {
  const FairLimit::Clock::time_point begin{seconds(100)};
  int served = 0;
  for (int wait = 999'990; wait <= 1'000'010; ++wait) {
    FairLimit limit(1, 1);
    ASSERT_FALSE(limit.Take("a", begin).has_value());
    const FairLimit::Clock::time_point now = begin + std::chrono::microseconds(wait);
    const bool spent = limit.IsSpent("a", now);
    EXPECT_EQ(spent, limit.Take("a", now).has_value()) << wait;
    served += spent ? 0 : 1;
  }
  EXPECT_GT(served, 0);
  EXPECT_LT(served, 21);
}

TEST(FairLimit, AUserIsForgottenWhenItsTimeIsOver) {
  FairLimit limit(10, 10);
  const FairLimit::Clock::time_point begin{seconds(100)};
  EXPECT_FALSE(limit.Take("a", begin).has_value());
  EXPECT_FALSE(limit.Take("b", begin + FairLimit::kRemembered - milliseconds(1)).has_value());
  EXPECT_EQ(limit.users(), 2u);
  EXPECT_FALSE(limit.Take("b", begin + FairLimit::kRemembered).has_value());
  EXPECT_EQ(limit.users(), 1u);
}

// However many passed IsSpent() together: the rate holds.
TEST(FairLimit, WhatIsChargedBeyondTheLimitIsPaidForAfterwards) {
  FairLimit limit(10, 3);
  const FairLimit::Clock::time_point begin{seconds(100)};
  for (int i = 0; i < 5; ++i) limit.Charge("a", begin);
  EXPECT_TRUE(limit.IsSpent("a", begin));
  EXPECT_TRUE(limit.IsSpent("a", begin + milliseconds(250)));
  EXPECT_FALSE(limit.IsSpent("a", begin + milliseconds(350)));
  // The debt has an end.
  for (int i = 0; i < 1000; ++i) limit.Charge("a", begin + milliseconds(350));
  EXPECT_TRUE(limit.IsSpent("a", begin + milliseconds(650)));
  EXPECT_FALSE(limit.IsSpent("a", begin + milliseconds(800)));
}

TEST(FairLimit, ZeroIsNoLimit) {
  FairLimit limit(0, 1);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(limit.Take("a", {}).has_value());
}

}  // namespace cbt::test::fair_limit_test
