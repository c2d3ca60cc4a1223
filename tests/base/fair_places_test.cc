#include "base/fair_places.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cbt::test::fair_places_test {

using Places = std::vector<FairPlaces::Place>;

// As many as `who` gets.
Places TakeAll(FairPlaces& places, const std::string& who) {
  Places taken;
  while (std::optional<FairPlaces::Place> place = places.Take(who)) {
    taken.push_back(*std::move(place));
  }
  return taken;
}

TEST(FairPlaces, YNobodyTakesAll) {
  FairPlaces places(64);
  const Places first = TakeAll(places, "a");
  EXPECT_EQ(first.size(), 32u);
  const Places second = TakeAll(places, "b");
  EXPECT_EQ(second.size(), 16u);
  const Places third = TakeAll(places, "c");
  EXPECT_EQ(third.size(), 8u);
  EXPECT_TRUE(places.Take("d").has_value());
}

TEST(FairPlaces, YPlacesComeBack) {
  FairPlaces places(2);
  {
    std::optional<FairPlaces::Place> one = places.Take("a");
    ASSERT_TRUE(one.has_value());
    EXPECT_FALSE(places.Take("a").has_value());
    FairPlaces::Place moved = *std::move(one);
    one.reset();
    EXPECT_FALSE(places.Take("a").has_value());
    moved.Release();
    moved.Release();
    EXPECT_TRUE(places.Take("a").has_value());
  }
  EXPECT_EQ(TakeAll(places, "b").size(), 1u);
  FairPlaces none(0);
  EXPECT_FALSE(none.Take("a").has_value());
}

TEST(FairPlaces, YAPlaceMayOutliveItsPool) {
  std::optional<FairPlaces::Place> place;
  {
    FairPlaces places(2);
    place = places.Take("a");
  }
  ASSERT_TRUE(place.has_value());
}

TEST(FairPlaces, YThreadsTakeAndGiveBack) {
  FairPlaces places(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&places, i] {
      for (int j = 0; j < 5000; ++j) places.Take(std::to_string(i % 3));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(TakeAll(places, "a").size(), 4u);
}

}  // namespace cbt::test::fair_places_test
