#include "programs/sidecar/stranger_limit.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cbt::test::stranger_limit_test {

using kube::cluster::QuestionKey;
using kube::sidecar::CouldBeToken;
using kube::sidecar::StrangerLimit;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

QuestionKey Key(int number) {
  QuestionKey key = {};
  for (size_t i = 0; i < sizeof number; ++i) key[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

const StrangerLimit::Clock::time_point kBegin{hours(100)};

TEST(StrangerLimit, YOneAddressHasHalfOfThePlaces) {
  StrangerLimit limit;
  std::vector<FairPlaces::Place> held;
  int token = 0;
  while (auto place = limit.Enter(Key(token++), "10.0.0.1", kBegin)) {
    held.push_back(*std::move(place));
  }
  EXPECT_EQ(held.size(), StrangerLimit::kPlaces / 2);
  EXPECT_TRUE(limit.Enter(Key(token), "10.0.0.2", kBegin).has_value());
  held.pop_back();
  EXPECT_TRUE(limit.Enter(Key(token), "10.0.0.1", kBegin).has_value());
}

TEST(StrangerLimit, YQuestionsASecondAreSharedByAddresses) {
  StrangerLimit limit;
  int asked = 0;
  int others = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto now = kBegin + milliseconds(i);
    if (limit.Enter(Key(i), "10.0.0.1", now).has_value()) ++asked;
    if (i % 100 == 0 && limit.Enter(Key(-i), "10.0.0.2", now).has_value()) ++others;
  }
  // 10 s at half of the rate each, and the burst; the second asks less than its share.
  EXPECT_LE(asked, static_cast<int>(10 * StrangerLimit::kRate) + StrangerLimit::kBurst);
  EXPECT_GE(asked, static_cast<int>(5 * StrangerLimit::kRate));
  EXPECT_EQ(others, 100);
}

TEST(StrangerLimit, YATokenThatWasValidIsNotLimited) {
  StrangerLimit limit;
  limit.Recognise(Key(7), kBegin);
  std::vector<FairPlaces::Place> held;
  int token = 1000;
  while (auto place = limit.Enter(Key(token++), "10.0.0.1", kBegin)) {
    held.push_back(*std::move(place));
  }
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(limit.Enter(Key(7), "10.0.0.1", kBegin + seconds(1)).has_value());
  }
  EXPECT_FALSE(limit.Enter(Key(7), "10.0.0.1", kBegin + hours(1)).has_value());
  // The oldest of too many is forgotten.
  for (int i = 0; i < static_cast<int>(StrangerLimit::kMaxKnown); ++i) {
    limit.Recognise(Key(100'000 + i), kBegin);
  }
  EXPECT_FALSE(limit.Enter(Key(7), "10.0.0.1", kBegin + seconds(1)).has_value());
  EXPECT_TRUE(limit.Enter(Key(100'000), "10.0.0.1", kBegin + seconds(1)).has_value());
}

TEST(StrangerLimit, YWhatCantBeATokenCostsNoQuestion) {
  for (const std::string_view text : {"eyJhbGciOi.J9-_~+/==", "abcdef.0123456789abcdef", "x"}) {
    EXPECT_TRUE(CouldBeToken(text)) << text;
  }
  for (const std::string_view text : {"", " ", "a b", "a\n", "\x7f", "\xc3\xa9"}) {
    EXPECT_FALSE(CouldBeToken(text)) << text;
  }
  EXPECT_FALSE(CouldBeToken(std::string_view("a\0b", 3)));
  EXPECT_TRUE(CouldBeToken(std::string(16 * 1024, 'x')));
  EXPECT_FALSE(CouldBeToken(std::string(16 * 1024 + 1, 'x')));
}

}  // namespace cbt::test::stranger_limit_test
