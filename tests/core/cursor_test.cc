// The rules that the base class enforces for every source.
#include "cbt/cursor.h"

#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>
#include <utility>

#include "cbt/batch.h"
#include "cbt/provider.h"
#include "tests/support/status.h"

namespace cbt {
namespace cursor_test {

using test::ValueOf;

class ScriptedCursor final : public ExtentCursor {
 public:
  using Step = std::function<absl::StatusOr<uint64_t>(ExtentBatch&)>;
  ScriptedCursor(uint64_t capacity, uint64_t granularity, std::vector<Step> steps)
      : ExtentCursor({.capacity = capacity, .granularity = granularity}),
        steps_(std::move(steps)) {}

  uint64_t sought = UINT64_MAX;
  size_t calls = 0;

 private:
  absl::Status DoSeek(uint64_t offset) override {
    sought = offset;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override { return steps_.at(calls++)(batch); }
  const std::vector<Step> steps_;
};

TEST(ExtentCursorTest, IsCompleteOnlyWhenCoverageReachesTheCapacity) {
  ScriptedCursor cursor(100, 10,
                        {[](ExtentBatch&) { return 40; },
                         [](ExtentBatch& batch) {
                           batch.push_back({50, 10});
                           return 60;
                         },
                         [](ExtentBatch&) { return 100; }});
  ExtentBatch batch;
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kMore);
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(cursor.covered(), 40u);
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kMore);
  EXPECT_EQ(batch.size(), 1u);
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
  // It stays complete without asking the source again.
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(cursor.calls, 3u);
}

TEST(ExtentCursorTest, E8EmptyVolumeIsCompleteAtOnce) {
  ScriptedCursor cursor(0, 10, {});
  ExtentBatch batch;
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
  EXPECT_OK(cursor.Seek(0));
  EXPECT_EQ(cursor.Seek(1).code(), absl::StatusCode::kOutOfRange);
}

TEST(ExtentCursorTest, E1SeekRoundsDownAndRefusesWhatLiesPastTheCapacity) {
  ScriptedCursor cursor(95, 10, {});
  ASSERT_OK(cursor.Seek(57));
  EXPECT_EQ(cursor.sought, 50u);
  EXPECT_EQ(cursor.covered(), 50u);
  ASSERT_OK(cursor.Seek(94));
  EXPECT_EQ(cursor.sought, 90u);
  ASSERT_OK(cursor.Seek(95));
  EXPECT_EQ(cursor.covered(), 95u);
  ExtentBatch batch;
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
  for (const uint64_t offset : {uint64_t{96}, uint64_t{INT64_MAX}, UINT64_MAX}) {
    EXPECT_EQ(cursor.Seek(offset).code(), absl::StatusCode::kOutOfRange);
  }
}

// Each of these would let a stream end early, or report nonsense.
TEST(ExtentCursorTest, E14SourceThatBreaksTheCoverageRuleFails) {
  const ScriptedCursor::Step violations[] = {
      [](ExtentBatch&) { return 9; },    // moves backwards
      [](ExtentBatch&) { return 101; },  // past the capacity
      [](ExtentBatch& batch) {           // reported again below the coverage
        batch.push_back({0, 10});
        return 100;
      },
      [](ExtentBatch& batch) {  // reported but not covered
        batch.push_back({20, 10});
        return 25;
      },
      [](ExtentBatch& batch) {  // outside the volume
        batch.push_back({100, 10});
        return 100;
      },
  };
  for (const auto& violation : violations) {
    ScriptedCursor cursor(100, 1, {[](ExtentBatch&) { return 10; }, violation});
    ExtentBatch batch;
    ASSERT_OK(cursor.Next(batch));
    EXPECT_EQ(cursor.Next(batch).status().code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(batch.empty());
    EXPECT_EQ(cursor.Next(batch).status().code(), absl::StatusCode::kInternal);
  }
}

TEST(ExtentCursorTest, ErrorStaysUntilSeekAndEmptiesTheBatch) {
  ScriptedCursor cursor(100, 1,
                        {[](ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
                           batch.push_back({1, 1});
                           return absl::UnavailableError("disk");
                         },
                         [](ExtentBatch&) { return 100; }});
  ExtentBatch batch;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cursor.Next(batch).status().message(), "disk");
    EXPECT_TRUE(batch.empty());
  }
  ASSERT_OK(cursor.Seek(0));
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
}

TEST(ExtentCursorTest, E1SeekToTheEndEndsAnErrorToo) {
  ScriptedCursor cursor(100, 1, {[](ExtentBatch&) -> absl::StatusOr<uint64_t> {
                          return absl::UnavailableError("disk");
                        }});
  ExtentBatch batch;
  EXPECT_FALSE(cursor.Next(batch).ok());
  ASSERT_OK(cursor.Seek(100));
  ASSERT_OK(cursor.Next(batch));
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
}

// Memory ran out after the source took an extent and before it reported it: what follows is
// incomplete.
TEST(ExtentCursorTest, OneThatThrewFailsUntilSeek) {
  ScriptedCursor cursor(100, 1,
                        {[](ExtentBatch&) { return 40; },
                         [](ExtentBatch&) -> absl::StatusOr<uint64_t> { throw std::bad_alloc(); },
                         [](ExtentBatch&) { return 100; },
                         [](ExtentBatch&) -> absl::StatusOr<uint64_t> { throw std::bad_alloc(); }});
  ExtentBatch batch;
  ASSERT_OK(cursor.Next(batch));
  EXPECT_THROW((void)cursor.Next(batch), std::bad_alloc);
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = cursor.Next(batch).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("offset 40 of 100"), std::string::npos) << status;
    EXPECT_TRUE(batch.empty());
  }
  ASSERT_OK(cursor.Seek(40));
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
  ASSERT_OK(cursor.Seek(0));
  EXPECT_THROW((void)cursor.Next(batch), std::bad_alloc);
  // Nothing can be missed past the last offset.
  ASSERT_OK(cursor.Seek(100));
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
}

// Has no position once its Seek() has thrown.
class ThrowingSeekCursor final : public ExtentCursor {
 public:
  ThrowingSeekCursor() noexcept : ExtentCursor({.capacity = 100, .granularity = 1}) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    if (offset == 7) throw std::bad_alloc();
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch&) override { return capacity(); }
};

TEST(ExtentCursorTest, ASeekThatThrewIsNotTheEnd) {
  ThrowingSeekCursor cursor;
  ExtentBatch batch;
  ASSERT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
  EXPECT_THROW((void)cursor.Seek(7), std::bad_alloc);
  EXPECT_EQ(cursor.Next(batch).status().code(), absl::StatusCode::kInternal);
  ASSERT_OK(cursor.Seek(8));
  EXPECT_EQ(ValueOf(cursor.Next(batch)), Step::kComplete);
}

TEST(ExtentCursorTest, ForEachBatchIsOkOnlyWhenComplete) {
  ScriptedCursor whole(100, 1, {[](ExtentBatch&) { return 50; }, [](ExtentBatch&) { return 100; }});
  EXPECT_OK(ForEachBatch(whole, [](const ExtentBatch&) { return absl::OkStatus(); }));
  ScriptedCursor refused(100, 1, {[](ExtentBatch&) { return 50; }});
  EXPECT_EQ(ForEachBatch(refused, [](const ExtentBatch&) { return absl::CancelledError(); }).code(),
            absl::StatusCode::kCancelled);
}

TEST(ExtentBatchTest, HoldsItsCapacityOnAlignedArrays) {
  for (const size_t capacity : std::initializer_list<size_t>{1, 7, 8, 9, 1000}) {
    ExtentBatch batch(capacity);
    while (!batch.full()) batch.push_back({batch.size(), batch.size() + 1});
    EXPECT_EQ(batch.size(), capacity);
    EXPECT_EQ(batch.back(), (Extent{capacity - 1, capacity}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.mutable_offsets()) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.mutable_lengths()) % 64, 0u);
  }
  EXPECT_EQ(ExtentBatch(0).capacity(), 1u);
}

TEST(SecretsTest, KeepsTheLastValue) {
  Secrets secrets;
  secrets.Set("key", "one");
  secrets.Set("key", "two");
  EXPECT_EQ(secrets.Get("key"), "two");
  EXPECT_EQ(secrets.Get("other"), std::nullopt);
}

}  // namespace cursor_test
}  // namespace cbt
