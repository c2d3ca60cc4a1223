// How much may wait for the readers of streams: the limits that let thousands of slow readers fit
// into memory, and the speed of fast ones.
#include "rpc/server/send_budget.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>

#include "cbt/units.h"

namespace cbt::rpc {
namespace send_budget_test {

using std::chrono::milliseconds;

constexpr size_t kMany = 100'000;
constexpr milliseconds kAtOnce{0};
constexpr milliseconds kPromptly{250};
constexpr milliseconds kSlowly{251};

// Makes messages of `length` bytes while there is room. Returns their number.
size_t Fill(SendBudget& budget, size_t length) {
  size_t count = 0;
  for (; budget.HasRoom(); ++count) budget.Made(length);
  return count;
}

// A message that is taken as soon as it is made.
void Pass(SendBudget& budget, size_t length, milliseconds took) {
  budget.Made(length);
  budget.Taken(length, took);
}

TEST(SendBudget, LittleWaitsForAReaderOfWhichNothingIsKnown) {
  for (const size_t length : {size_t{1}, size_t{100}, kKiB, 10 * kKiB, 128 * kKiB}) {
    SendBudget budget(kMany, 64 * kMiB);
    const size_t count = Fill(budget, length);
    // A message's overhead counts, so there are no thousands of tiny ones.
    EXPECT_LE((count - 1) * (length + 400), 4 * kKiB) << length;
    EXPECT_GE(count * (length + 400), 4 * kKiB) << length;
  }
}

TEST(SendBudget, OneMessageGoesHoweverLongItIs) {
  SendBudget budget(kMany, 1);
  EXPECT_EQ(Fill(budget, kGiB), 1u);
  budget.Taken(kGiB, kSlowly);
  EXPECT_TRUE(budget.HasMuchRoom());
  EXPECT_EQ(Fill(budget, kGiB), 1u);
}

TEST(SendBudget, AQuarterOfWhatWasTakenAtOnceMayWait) {
  SendBudget budget(kMany, 64 * kMiB);
  // The first bytes only fill the transport's windows and say nothing about the reader.
  for (int i = 0; i < 15; ++i) Pass(budget, 16 * kKiB, kAtOnce);
  budget.Made(4 * kKiB);
  EXPECT_FALSE(budget.HasRoom());
  budget.Taken(4 * kKiB, kAtOnce);

  Pass(budget, 12 * kKiB, kPromptly);  // 256 KiB by now
  const size_t length = 16 * kKiB - 400;
  EXPECT_EQ(Fill(budget, length), 4u);
  for (int i = 0; i < 4; ++i) budget.Taken(length, kAtOnce);
  EXPECT_EQ(Fill(budget, length), 5u);  // 320 KiB, less the messages' overhead
}

TEST(SendBudget, WhoHesitatesBeginsAgain) {
  SendBudget budget(kMany, 64 * kMiB);
  Pass(budget, 100 * kMiB, kAtOnce);
  EXPECT_EQ(Fill(budget, kMiB), 25u);
  budget.Taken(kMiB, kSlowly);
  // What was made stays; nothing is added until almost all of it has been taken.
  for (int i = 1; i < 24; ++i) {
    EXPECT_FALSE(budget.HasRoom()) << i;
    budget.Taken(kMiB, kSlowly);
  }
  EXPECT_FALSE(budget.HasRoom());
  budget.Taken(kMiB, kSlowly);
  EXPECT_EQ(Fill(budget, kMiB), 1u);
}

TEST(SendBudget, NeverMoreThanItsOwnerAllows) {
  SendBudget few(3, 64 * kMiB);
  Pass(few, kGiB, kAtOnce);
  EXPECT_EQ(Fill(few, 1), 3u);
  SendBudget small(kMany, kMiB);
  Pass(small, kGiB, kAtOnce);
  EXPECT_EQ(Fill(small, kMiB / 4), 4u);
  SendBudget smaller(kMany, kKiB);
  EXPECT_EQ(Fill(smaller, kKiB / 2), 2u);
}

TEST(SendBudget, WhoPausedIsWokenWhenHalfIsFree) {
  SendBudget messages(4, 64 * kMiB);
  Pass(messages, kGiB, kAtOnce);
  ASSERT_EQ(Fill(messages, 1), 4u);
  EXPECT_FALSE(messages.HasMuchRoom());
  messages.Taken(1, kAtOnce);
  EXPECT_TRUE(messages.HasRoom());
  EXPECT_FALSE(messages.HasMuchRoom());
  messages.Taken(1, kAtOnce);
  EXPECT_TRUE(messages.HasMuchRoom());

  const size_t length = kMiB / 4 - 400;
  SendBudget bytes(kMany, kMiB);
  Pass(bytes, kGiB, kAtOnce);
  ASSERT_EQ(Fill(bytes, length), 4u);
  bytes.Taken(length, kAtOnce);
  EXPECT_TRUE(bytes.HasRoom());
  EXPECT_FALSE(bytes.HasMuchRoom());
  bytes.Taken(length, kAtOnce);
  EXPECT_TRUE(bytes.HasMuchRoom());
}

// One message at a time: the producer is woken when none is left.
TEST(SendBudget, OneMessageAtATime) {
  SendBudget budget(1, 64 * kMiB);
  ASSERT_EQ(Fill(budget, 1), 1u);
  EXPECT_FALSE(budget.HasMuchRoom());
  budget.Taken(1, kAtOnce);
  EXPECT_TRUE(budget.HasMuchRoom());
}

}  // namespace send_budget_test
}  // namespace cbt::rpc
