// Reads the output of era_invalidate and era_dump.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "tests/source/support/imports.h"
#include "tests/source/support/listings.h"
#include "tests/support/status.h"

namespace cbt {
namespace era_test {

using reference::Ranges;
using test::From;
using test::RangesOf;
using test::Sample;
using test::ValueOf;

TEST(Era, WhatTheToolsWroteIsRead) {
  const ImportOptions import{.capacity = 201 * uint64_t{65536} - 100};
  EXPECT_RANGES(From(ReadEraInvalidate, Sample("era_invalidate.xml"),
                     EraOptions{.import = import, .block_size = 65536}),
                {{65536, 3 * 65536}, {200 * 65536, 65536 - 100}});
  const std::string dump = Sample("era_dump.xml");
  const auto blocks = [](std::initializer_list<uint64_t> list) {
    Ranges ranges;
    for (const uint64_t block : list) {
      if (!ranges.empty() && ranges.back().first + ranges.back().second == block * 65536) {
        ranges.back().second += 65536;
      } else {
        ranges.emplace_back(block * 65536, 65536);
      }
    }
    return ranges;
  };
  // The writesets of eras 3 and 4; the array only has older ones.
  EXPECT_EQ(RangesOf(ValueOf(From(ReadEraDump, dump, EraOptions{.since_era = 4}))),
            blocks({64, 65, 189}));
  EXPECT_EQ(RangesOf(ValueOf(From(ReadEraDump, dump, EraOptions{.since_era = 3}))),
            blocks({0, 1, 7, 64, 65, 189}));
  EXPECT_EQ(ValueOf(From(ReadEraDump, dump, EraOptions{.since_era = 0}))->cardinality(), 190u * 16);
  EXPECT_REFUSED(From(ReadEraDump, dump, EraOptions{.since_era = 5}), kInvalidArgument, "era 5");
  EXPECT_REFUSED(From(ReadEraDump, dump, EraOptions{}), kInvalidArgument, "since which era");
}

TEST(Era, ADumpOfADeviceInUseIsRefused) {
  // As the tool prints it: the writeset of era 5 is not archived yet, so its writes are unknown.
  std::string live = Sample("era_dump.xml");
  live.replace(live.find("current_era=\"4\""), 15, "current_era=\"5\"");
  for (const uint64_t since : {0U, 3U, 4U, 5U}) {
    EXPECT_REFUSED(From(ReadEraDump, live, EraOptions{.since_era = since}), kFailedPrecondition,
                   "lacks what was written in era 5, the current one: dump a copy");
  }
  // An empty writeset: the device was suspended before any write of the era.
  const size_t array = live.find("<era_array>");
  std::string rest = live;
  std::vector<bool> bits(190);
  rest.insert(array, test::Writeset(5, bits));
  EXPECT_RANGES(From(ReadEraDump, rest, EraOptions{.since_era = 5}), {});
  bits[9] = true;
  live.insert(array, test::Writeset(5, bits));
  EXPECT_RANGES(From(ReadEraDump, live, EraOptions{.since_era = 5}), {{9 * 65536, 65536}});
}

// --logical leaves writesets out, and reports several blocks with the era of the first.
TEST(Era, AttackGALogicalDumpIsRefused) {
  const std::string device =
      R"(<superblock uuid="" block_size="128" nr_blocks="2" current_era="4">)";
  const auto array = [](int first, int second) {
    return absl::StrCat(R"(<era_array><era block="0" era=")", first, R"("/><era block="1" era=")",
                        second, R"("/></era_array></superblock>)");
  };
  // Block 0 was written in eras 3 and 4, block 1 in era 4.
  EXPECT_RANGES(From(ReadEraDump,
                     device + test::Writeset(3, {true, false}) + test::Writeset(4, {true, true}) +
                         array(0, 0),
                     EraOptions{.since_era = 4}),
                {{0, 2 * 65536}});
  // The same dump with --logical, and its output if nothing was written in the current era.
  for (const std::string& eras : {array(3, 4), array(2, 3), array(4, 4), array(0, 0)}) {
    for (const uint64_t since : {0U, 3U, 4U}) {
      EXPECT_REFUSED(From(ReadEraDump, device + eras, EraOptions{.since_era = since}),
                     kFailedPrecondition, "has no writesets (era_dump --logical)");
    }
  }
  // The array does not imply that the current era's writeset is present.
  EXPECT_REFUSED(From(ReadEraDump, device + test::Writeset(3, {true, false}) + array(3, 4),
                      EraOptions{.since_era = 4}),
                 kFailedPrecondition, "lacks what was written in era 4, the current one");
}

// --repair leaves out bits and writesets that it cannot read.
TEST(Era, AttackGARepairedDumpIsRefused) {
  using test::Writeset;
  const auto read = [](const std::string& writesets, uint64_t since = 4) {
    return From(ReadEraDump,
                R"(<superblock uuid="" block_size="128" nr_blocks="3" current_era="5">)" +
                    writesets +
                    R"(<era_array><era block="0" era="0"/><era block="1" era="0"/>)"
                    R"(<era block="2" era="0"/></era_array></superblock>)",
                EraOptions{.since_era = since});
  };
  const std::string third = Writeset(3, {true, false, false});
  const std::string fourth = Writeset(4, {false, true, false});
  const std::string fifth = Writeset(5, {false, false, true});
  EXPECT_RANGES(read(third + fourth + fifth), {{65536, 2 * 65536}});
  EXPECT_RANGES(read(fifth), {{2 * 65536, 65536}});
  for (const uint64_t since : {0U, 4U, 5U}) {
    for (const std::string& cut : {std::string(R"(<writeset era="4" nr_bits="3"></writeset>)"),
                                   std::string(R"(<writeset era="4" nr_bits="3"/>)")}) {
      EXPECT_REFUSED(read(third + cut + fifth, since), kDataLoss, "era 4 has 0 bits");
    }
    for (const std::string bit : {"0", "1"}) {
      std::string cut = fourth;
      const size_t at = cut.find("<bit block=\"" + bit);
      cut.erase(at, cut.find('\n', at) - at);
      EXPECT_REFUSED(read(third + cut + fifth, since), kDataLoss, "era 4 lacks bit " + bit);
    }
    EXPECT_REFUSED(read(third + fifth, since), kDataLoss, "era 4 is missing");
    EXPECT_REFUSED(read(third + fourth + fourth + fifth, since), kDataLoss, "comes after");
    EXPECT_REFUSED(read(fourth + third + fifth, since), kDataLoss, "comes after");
    EXPECT_REFUSED(read(fourth + fifth + Writeset(6, {true, true, true}), since), kDataLoss,
                   "is in era 5");
  }
  const std::string longer = Writeset(4, {false, true, false, false});
  EXPECT_RANGES(read(longer + fifth), {{65536, 2 * 65536}});
  // From before the device grew: unchanged, and padded by newer tools.
  std::string filled = fourth;
  filled.replace(filled.find("nr_bits=\"3\""), 11, "nr_bits=\"2\"");
  for (const std::string& shorter : {Writeset(4, {false, true}), filled}) {
    EXPECT_REFUSED(read(shorter + fifth), kFailedPrecondition, "2 bits for 3 blocks");
    EXPECT_RANGES(read(shorter + fifth, 5), {{2 * 65536, 65536}});
  }
}

// Some versions print it for "unknown".
TEST(Era, SHAnEmptyListIsNoAnswer) {
  EraOptions options{.import = {.capacity = kMiB}, .block_size = 65536};
  for (const char* text : {"<blocks>\n</blocks>\n", "<blocks/>"}) {
    EXPECT_REFUSED(From(ReadEraInvalidate, text, options), kFailedPrecondition,
                   "era-invalidate:empty=unwritten");
    options.empty_is_unwritten = true;
    EXPECT_RANGES(From(ReadEraInvalidate, text, options), {});
    options.empty_is_unwritten = false;
  }
}

}  // namespace era_test
}  // namespace cbt
