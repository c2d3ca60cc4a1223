// Every importer of range lists: correct on any list, and an error on any part of one.
#include "tests/source/support/listings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "tests/support/cursors.h"
#include "tests/support/dribble.h"
#include "tests/support/generators.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace listings_test {

using absl::StatusCode;
using reference::ByteSet;
using reference::Ranges;
using test::AnyRandom;
using test::Between;
using test::Listing;
using test::RangesOf;
using test::ValueOf;

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

absl::StatusOr<ChangeMap> Read(const Listing& listing, const std::string& text,
                               const ImportOptions& options) {
  const auto stream = MakeBorrowedMemoryStream(BytesOf(text), "list");
  return listing.read(*stream, options);
}

class Listings : public testing::TestWithParam<Listing> {};

TEST_P(Listings, RandomRangesAreRoundedOutwardAndCut) {
  const Listing& listing = GetParam();
  const bool holds = rc::check([&] {
    std::mt19937_64 random = AnyRandom();
    // At least one unit: some formats cannot express an empty gap.
    const auto units = Between<uint64_t>(1, 60);
    ByteSet set(units);
    const size_t density = Between<size_t>(1, 8);
    for (size_t i = 0; i < units; ++i) set[i] = random() % density == 0;
    Ranges ranges = reference::RunsOf(set);
    if (listing.any_order) {
      std::shuffle(ranges.begin(), ranges.end(), random);
      // A repeated range counts once.
      if (!ranges.empty() && listing.name != "ThinDump") ranges.push_back(ranges.front());
    }
    const std::string text = listing.write(ranges, units);
    ImportOptions options;
    options.granularity = uint64_t{1} << Between(0, 20);
    options.capacity = units * listing.unit;
    const bool tail = listing.unit > 1 && listing.name != "Ebs" && random() % 2 == 0;
    if (tail) *options.capacity -= random() % 512;
    test::Dribble stream(text, 1 + random() % 100, "list");
    const absl::StatusOr<ChangeMap> map = listing.read(stream, options);
    if (!map.ok()) RC_FAIL(map.status().ToString() + "\n" + text);
    RC_ASSERT((*map)->capacity() == *options.capacity);
    Ranges expected;
    // In units of the coarser of the two; the volumes are small enough to compute this directly.
    uint64_t end = 0;
    for (const auto& [begin, length] : reference::RunsOf(set)) {
      const uint64_t from = begin * listing.unit / options.granularity * options.granularity;
      const uint64_t to =
          std::min(*options.capacity, ((begin + length) * listing.unit + options.granularity - 1) /
                                          options.granularity * options.granularity);
      if (!expected.empty() && from <= end) {
        expected.back().second = std::max(end, to) - expected.back().first;
      } else if (from < to) {
        expected.emplace_back(from, to - from);
      }
      end = std::max(end, to);
    }
    RC_ASSERT(RangesOf(*map) == expected);
  });
  EXPECT_TRUE(holds);
}

TEST_P(Listings, NoBeginningOfAListIsTakenForTheList) {
  const Listing& listing = GetParam();
  const std::string text = listing.write({{1, 2}, {5, 1}, {8, 9}}, 20);
  const ImportOptions options{.capacity = 20 * listing.unit};
  ASSERT_OK(Read(listing, text, options));
  for (size_t size = 0; size < text.size(); ++size) {
    const auto map = Read(listing, text.substr(0, size), options);
    ASSERT_FALSE(map.ok()) << "the first " << size << " of " << text.size() << " bytes of\n"
                           << text;
    EXPECT_EQ(map.status().code(), StatusCode::kDataLoss) << map.status();
    EXPECT_THAT(std::string(map.status().message()), testing::StartsWith("list: "));
  }
}

TEST_P(Listings, WhatFollowsTheEndIsRefused) {
  const Listing& listing = GetParam();
  const std::string text = listing.write({{1, 2}}, 20);
  const ImportOptions options{.capacity = 20 * listing.unit};
  for (const std::string& more : {text, std::string("x"), std::string(1, '\0')}) {
    EXPECT_EQ(Read(listing, text + more, options).status().code(), StatusCode::kDataLoss) << more;
  }
}

TEST_P(Listings, RangesPastTheEndAreRefusedAndThoseOfALargerBaseCut) {
  const Listing& listing = GetParam();
  if (listing.name == "EraDump" || listing.name == "QemuMap") return;  // these mark their own end
  const std::string text = listing.write({{1, 2}, {15, 5}}, 20);
  const ImportOptions small{.capacity = 16 * listing.unit, .granularity = listing.unit};
  EXPECT_FALSE(Read(listing, text, small).ok());
  const bool holds_its_size =
      listing.name == "RbdDiff" || listing.name == "Ndjson" || listing.name == "Json";
  if (holds_its_size) return;
  ImportOptions shrunk = small;
  shrunk.base_capacity = 20 * listing.unit;
  const auto map = Read(listing, text, shrunk);
  ASSERT_OK(map);
  EXPECT_EQ(RangesOf(*map),
            (Ranges{{listing.unit, 2 * listing.unit}, {15 * listing.unit, listing.unit}}));
}

TEST_P(Listings, NumbersThatWrapAreRefused) {
  const Listing& listing = GetParam();
  if (listing.name == "EraDump") return;  // one line per block
  if (listing.name == "Vmware") return;   // writes only the ranges of its answers
  const uint64_t huge = ~uint64_t{0} / listing.unit;
  for (const Ranges& ranges :
       {Ranges{{huge - 1, 1}}, Ranges{{1, 1}, {huge / 2 + 1, 1}}, Ranges{{huge, 1}}}) {
    // The list with its last number replaced; the writers themselves must not wrap around.
    const auto map = Read(listing, listing.write(ranges, 20), {.capacity = 20 * listing.unit});
    EXPECT_FALSE(map.ok());
  }
}

TEST_P(Listings, DamagedListsAreRefusedOrRead) {
  const Listing& listing = GetParam();
  const std::string text = listing.write({{1, 2}, {5, 1}, {8, 9}}, 20);
  const ImportOptions options{.capacity = 20 * listing.unit};
  test::SeededRandom random(11);
  for (int i = 0; i < 3000; ++i) {
    SCOPED_TRACE(absl::StrCat("list ", i));
    std::string damaged = text;
    for (size_t hits = 1 + random() % 3; hits > 0; --hits) {
      const size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, 1 + random() % 8);
          break;
        case 2:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 16));
          break;
        default:
          damaged[at] = static_cast<char>('0' + random() % 10);
      }
      if (damaged.empty()) break;
    }
    const auto map = Read(listing, damaged, options);
    if (map.ok()) {
      EXPECT_LE((*map)->capacity(), uint64_t{1} << 62) << damaged;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Listings, testing::ValuesIn(test::Listings()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace listings_test
}  // namespace cbt
