#include <gtest/gtest.h>

#include <string>

#include "cbt/extent.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/message.h"
#include "tests/support/status.h"

namespace cbt {
namespace stream_checker_test {

constexpr auto kFixed = BlockMetadataType::kFixedLength;
constexpr auto kVariable = BlockMetadataType::kVariableLength;

// Checks messages in order; returns the status of the first refused one.
absl::Status CheckAll(std::vector<MetadataMessage> messages, uint64_t offset = 0,
                      uint32_t max = 0) {
  StreamChecker checker(offset, max);
  for (const auto& message : messages) {
    if (absl::Status status = checker.Check(message); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(StreamCheckerTest, TakesSoundStreamsAndKeepsCount) {
  StreamChecker checker(5, 2);
  ASSERT_OK(checker.Check({kVariable, 100, {{0, 10}, {10, 5}}}));
  ASSERT_OK(checker.Check({kVariable, 100, {}}));
  ASSERT_OK(checker.Check({kVariable, 100, {{99, 1}}}));
  EXPECT_EQ(checker.messages(), 3u);
  EXPECT_EQ(checker.tuples(), 3u);
  EXPECT_EQ(checker.bytes(), 16u);
  EXPECT_EQ(checker.resume_offset(), 100u);
  EXPECT_EQ(StreamChecker(7).resume_offset(), 7u);
  EXPECT_OK(CheckAll({{kFixed, 100, {{0, 64}, {64, 64}}}}));
}

// proto3 omits zeros, so an empty message has capacity 0.
TEST(StreamCheckerTest, AttackSACapacityOfZeroIsNoCapacity) {
  for (const auto type : {kFixed, kVariable}) {
    const absl::Status status = CheckAll({{type, 0, {}}});
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("volume_capacity_bytes"), std::string::npos) << status;
    EXPECT_FALSE(CheckAll({{type, 100, {}}, {type, 0, {}}}).ok());
  }
}

// Blocks so large that the last one ends past the largest volume, though it begins inside.
TEST(StreamCheckerTest, TakesALastBlockThatEndsPastEverything) {
  constexpr uint64_t kBlock = uint64_t{1} << 62;
  StreamChecker checker(0);
  ASSERT_OK(checker.Check({kFixed, kMaxCapacity, {{0, kBlock}, {kBlock, kBlock}}}));
  EXPECT_EQ(checker.tuples(), 2u);
  EXPECT_EQ(checker.bytes(), 2 * kBlock);
  EXPECT_FALSE(checker.Check({kFixed, kMaxCapacity, {{kMaxCapacity - 1, kBlock}}}).ok());
}

TEST(StreamCheckerTest, RefusesWhatEndsWhereNoVolumeDoes) {
  constexpr uint64_t kTop = kMaxCapacity + 1;
  EXPECT_OK(CheckAll({{kFixed, kMaxCapacity, {{kTop - 4096, 4096}}}}));
  for (const auto type : {kFixed, kVariable}) {
    // The whole range of decoded numbers: each is below 2^63.
    for (const Extent wrong :
         {Extent{kTop - 4096, kMaxCapacity}, Extent{kTop - 4096, 4097}, Extent{2, kMaxCapacity}}) {
      const absl::Status status = CheckAll({{type, kMaxCapacity, {wrong}}});
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << wrong.offset << " " << wrong.length;
      EXPECT_NE(std::string(status.message()).find("ends past the largest possible volume"),
                std::string::npos)
          << status;
    }
  }
}

TEST(StreamCheckerTest, NamesTheTupleThatBreaksARule) {
  const struct {
    absl::Status status;
    const char* text;
  } cases[] = {
      {CheckAll({{kVariable, 100, {{0, 10}, {9, 1}}}}), "tuple 1"},
      {CheckAll({{kVariable, 100, {{50, 10}}}, {kVariable, 100, {{0, 10}}}}), "tuple 1"},
      {CheckAll({{kVariable, 100, {{0, 10}, {0, 10}}}}), "tuple 1"},
      {CheckAll({{kVariable, 100, {{0, 0}}}}), "is empty"},
      {CheckAll({{kVariable, 100, {{100, 1}}}}), "past the capacity"},
      {CheckAll({{kVariable, 100, {{99, 2}}}}), "past the capacity"},
      {CheckAll({{kVariable, 100, {{0, 10}}}}, 10), "starting offset 10"},
      {CheckAll({{kFixed, 100, {{0, 10}, {10, 20}}}}), "FIXED_LENGTH"},
      {CheckAll({{BlockMetadataType::kUnknown, 100, {}}}), "block_metadata_type"},
      {CheckAll({{kVariable, 100, {}}, {kFixed, 100, {}}}), "message 1"},
      {CheckAll({{kVariable, 100, {}}, {kVariable, 101, {}}}), "message 1"},
      {CheckAll({{kVariable, 100, {{0, 1}, {1, 1}}}}, 0, 1), "max_results"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(c.status.code(), absl::StatusCode::kDataLoss) << c.text;
    EXPECT_NE(std::string(c.status.message()).find(c.text), std::string::npos) << c.status;
  }
}

}  // namespace stream_checker_test
}  // namespace cbt
