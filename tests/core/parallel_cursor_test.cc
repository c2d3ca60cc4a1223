#include "core/parallel_cursor.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <exception>
#include <new>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace parallel_cursor_test {

using test::ValueOf;

using reference::Ranges;

// An executor that never runs a task: the cursor must finish alone.
class DeadExecutor final : public Executor {
 public:
  void Schedule(std::function<void()>) override {}
};

std::vector<uint8_t> AnyBits(size_t bits, std::mt19937_64& random) {
  std::vector<uint8_t> bytes((bits + 7) / 8);
  bool value = random() % 2 == 0;
  size_t change = 0;
  uint64_t mean = 1;
  for (size_t i = 0; i < bits; ++i) {
    if (i == change) {
      value = !value;
      if (random() % 20 == 0) mean = uint64_t{1} << (random() % 12);
      change = i + 1 + random() % (2 * mean);
    }
    if (value) bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | 1u << (i % 8));
  }
  return bytes;
}

// Parts of at least 64 blocks, so that a small bitmap has many.
ParallelParts SmallParts(const BitmapView& view, uint64_t capacity, uint64_t granularity) {
  ParallelParts parts;
  parts.make = [=](uint64_t end) -> std::unique_ptr<ExtentCursor> {
    const uint64_t blocks = BlockCount(capacity, granularity);
    auto whole = ValueOf(MakeBorrowedBitmapCursor(
        view.Slice(0, blocks), {.capacity = capacity, .granularity = granularity}));
    return ValueOf(Clip(std::move(whole), 0, end));
  };
  parts.first_blocks = 64;
  parts.min_blocks = 64;
  parts.max_blocks = 256;
  return parts;
}

RC_GTEST_PROP(ParallelCursorProperty, IsTheSameStreamFromEveryOffset, ()) {
  static ThreadPool pool(3);
  static DeadExecutor dead;
  std::mt19937_64 random = test::AnyRandom();
  const auto blocks = test::Between<size_t>(1, 20'000);
  const auto granularity = *rc::gen::element<uint64_t>(1, 3, 4096);
  const uint64_t capacity = blocks * granularity - test::Between<uint64_t>(0, granularity);
  const auto batch = *rc::gen::element<size_t>(1, 7, ExtentBatch::kDefaultCapacity, 2000);
  const auto bytes = AnyBits(blocks, random);
  const auto view = ValueOf(BitmapView::Create(bytes, 0, blocks));
  const Ranges want = ValueOf(test::Drain(*ValueOf(
      MakeBorrowedBitmapCursor(view, {.capacity = capacity, .granularity = granularity}))));
  Executor& executor = **rc::gen::element<Executor*>(&pool, &pool, &pool, &dead);
  auto cursor = MakeParallelCursor(SmallParts(view, capacity, granularity), capacity, granularity,
                                   executor, test::Between<size_t>(2, 5));
  RC_ASSERT(ValueOf(test::Drain(*cursor, batch)) == want);
  for (int i = 0; i < 5; ++i) {
    const uint64_t offset = random() % (capacity + 1);
    const uint64_t at = offset == capacity ? capacity : offset / granularity * granularity;
    RC_ASSERT(ValueOf(test::DrainFrom(*cursor, offset, batch)) == reference::CutAt(want, at));
    // Abandoned halfway.
    test::RequireOk(cursor->Seek(random() % (capacity + 1)));
    ExtentBatch some(batch);
    test::RequireOk(cursor->Next(some));
  }
}

// Begins each pass with a step that covers nothing.
class LateCursor final : public ExtentCursor {
 public:
  explicit LateCursor(std::unique_ptr<ExtentCursor> input)
      : ExtentCursor({.capacity = input->capacity(), .granularity = input->granularity()}),
        input_(std::move(input)) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    begun_ = false;
    return input_->Seek(offset);
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (!std::exchange(begun_, true)) return covered();
    if (absl::Status status = input_->Next(batch).status(); !status.ok()) return status;
    return input_->covered();
  }

  const std::unique_ptr<ExtentCursor> input_;
  bool begun_ = false;
};

// Extents that end with a part are held back until the next part begins.
TEST(ParallelCursorTest, APartMayBeginWithAStepThatCoversNothing) {
  std::vector<uint8_t> bits(128, 0);
  for (size_t part = 0; part < bits.size(); part += 8) bits[part + 7] = 0x80;
  const uint64_t capacity = bits.size() * 8;
  const BitmapView view = ValueOf(BitmapView::Create(bits, 0, capacity));
  ParallelParts parts = SmallParts(view, capacity, 1);
  parts.make = [whole = parts.make](uint64_t end) {
    return std::make_unique<LateCursor>(whole(end));
  };
  DeadExecutor executor;
  const auto cursor = MakeParallelCursor(parts, capacity, 1, executor, 2);
  Ranges want;
  for (uint64_t at = 63; at < capacity; at += 64) want.emplace_back(at, 1);
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), want);
}

TEST(ParallelCursorTest, ThroughThePublicFactory) {
  ThreadPool pool(2);
  test::SeededRandom random(1);
  constexpr size_t kBlocks = (size_t{1} << 25) + 77;
  const auto base = AnyBits(kBlocks, random);
  auto target = base;
  for (size_t i = 0; i < target.size(); ++i) {
    // Quiet, sparse and dense stretches of a few MiB.
    const size_t kind = i >> 19 & 3;
    if (kind == 1 && random() % 512 == 0) target[i] = static_cast<uint8_t>(~target[i]);
    if (kind == 2) target[i] = static_cast<uint8_t>(random());
    if (kind == 3) target[i] = static_cast<uint8_t>(~target[i]);
  }
  ASSERT_OK_AND_ASSIGN(const auto a, BitmapView::Create(base, 0, kBlocks));
  ASSERT_OK_AND_ASSIGN(const auto b, BitmapView::Create(target, 0, kBlocks));
  ASSERT_OK_AND_ASSIGN(
      const Ranges want,
      test::Drain(*ValueOf(MakeBorrowedBitmapCursor(
          a, b, BitmapOp::kXor, {.capacity = kBlocks * 4096, .granularity = 4096}))));
  for (const size_t threads : {size_t{1}, size_t{2}, size_t{3}}) {
    BitmapOptions options;
    options.executor = &pool;
    options.parallel = threads;
    ASSERT_OK_AND_ASSIGN(
        auto cursor,
        MakeBorrowedBitmapCursor(a, b, BitmapOp::kXor,
                                 {.capacity = kBlocks * 4096, .granularity = 4096}, options));
    EXPECT_TRUE(test::SameRanges(ValueOf(test::Drain(*cursor)), want)) << threads << " threads";
    EXPECT_TRUE(test::SameRanges(ValueOf(test::DrainFrom(*cursor, 12'345'678'901, 100)),
                                 reference::CutAt(want, 12'345'678'901 / 4096 * 4096)))
        << threads << " threads";
  }
}

// A caller that asks for threads without an executor still gets the whole stream.
TEST(ParallelCursorTest, ThreadsWithoutAnExecutorAreTheCallersOwn) {
  std::vector<uint8_t> base(100'000, 0);
  std::vector<uint8_t> target = base;
  target[70'000] = 1;
  MemoryOptions memory;
  memory.parallel = 4;
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeBorrowedMemoryDeltaCursor(base, target, memory)))),
            (Ranges{{69'632, 4096}}));
  BitmapOptions bitmap;
  bitmap.parallel = 4;
  ASSERT_OK_AND_ASSIGN(const auto bits, BitmapView::Create(target, 0, 800'000));
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(
                MakeBorrowedBitmapCursor(bits, {.capacity = 800'000, .granularity = 1}, bitmap)))),
            (Ranges{{560'000, 1}}));
}

// Dense throughout: every part exceeds its queue, and the consumer is the slow side.
TEST(ParallelCursorTest, PartsThatOverflowAreFinishedInTheirTurn) {
  ThreadPool pool(2);
  constexpr size_t kBlocks = size_t{1} << 23;
  const std::vector<uint8_t> bytes(kBlocks / 8, 0x55);
  ASSERT_OK_AND_ASSIGN(const auto view, BitmapView::Create(bytes, 0, kBlocks));
  BitmapOptions options;
  options.executor = &pool;
  options.parallel = 3;
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeBorrowedBitmapCursor(
                                        view, {.capacity = kBlocks, .granularity = 1}, options));
  ExtentBatch batch;
  uint64_t next = 0;
  for (Step step = Step::kMore; step == Step::kMore;) {
    ASSERT_OK_AND_ASSIGN(step, cursor->Next(batch));
    for (size_t i = 0; i < batch.size(); ++i, next += 2) {
      ASSERT_EQ(batch[i], (Extent{next, 1}));
    }
    if (next % 4096 == 0) std::this_thread::yield();
  }
  EXPECT_EQ(next, kBlocks);
}

// One extent across all parts, and no extent.
TEST(ParallelCursorTest, E9FullVolumeIsOneExtentAndE8EmptyOneNone) {
  ThreadPool pool(2);
  constexpr size_t kBlocks = 100'001;
  for (const int fill : {0xff, 0}) {
    const std::vector<uint8_t> bytes(kBlocks / 8 + 1, static_cast<uint8_t>(fill));
    ASSERT_OK_AND_ASSIGN(const auto view, BitmapView::Create(bytes, 0, kBlocks));
    auto cursor = MakeParallelCursor(SmallParts(view, kBlocks, 1), kBlocks, 1, pool, 3);
    EXPECT_EQ(ValueOf(test::Drain(*cursor)), fill == 0 ? Ranges{} : (Ranges{{0, kBlocks}}));
  }
}

// Fails at a given offset.
class FailingCursor final : public ExtentCursor {
 public:
  FailingCursor(uint64_t capacity, uint64_t fails_at, uint64_t end) noexcept
      : ExtentCursor({.capacity = capacity, .granularity = 1}), fails_at_(fails_at), end_(end) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (position_ <= fails_at_ && fails_at_ < position_ + 64 && fails_at_ < end_) {
      return absl::UnavailableError("no");
    }
    batch.push_back({position_, 1});
    position_ += 64;
    return position_ >= end_ ? capacity() : position_;
  }
  const uint64_t fails_at_;
  const uint64_t end_;
  uint64_t position_ = 0;
};

TEST(ParallelCursorTest, AnErrorComesInItsTurnAndStays) {
  ThreadPool pool(2);
  constexpr uint64_t kCapacity = 64 * 1000;
  for (const uint64_t fails_at : {uint64_t{0}, uint64_t{64 * 7}, uint64_t{64 * 555 + 3}}) {
    ParallelParts parts;
    parts.make = [=](uint64_t end) {
      return std::make_unique<FailingCursor>(kCapacity, fails_at, end);
    };
    parts.first_blocks = parts.min_blocks = parts.max_blocks = 64 * 5;
    auto cursor = MakeParallelCursor(std::move(parts), kCapacity, 1, pool, 3);
    ExtentBatch batch;
    uint64_t extents = 0;
    absl::StatusOr<Step> step = Step::kMore;
    while (step.ok() && *step == Step::kMore) {
      step = cursor->Next(batch);
      if (step.ok()) extents += batch.size();
    }
    EXPECT_EQ(step.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(extents, fails_at / 64);
    EXPECT_EQ(cursor->Next(batch).status().code(), absl::StatusCode::kUnavailable);
  }
}

// Runs each task in its own thread and joins it, so that the caller finds all parts done. The
// cursor holds no lock while it calls.
class PromptExecutor final : public Executor {
 public:
  void Schedule(std::function<void()> task) override {
    ++scheduled;
    if (scheduled == throws_at) throw std::bad_alloc();
    std::thread(std::move(task)).join();
  }
  int scheduled = 0;
  int throws_at = 0;
};

// Throws at a given offset, on every thread but the one that created it.
template <typename Exception>
class ThrowingCursor final : public ExtentCursor {
 public:
  ThrowingCursor(uint64_t capacity, uint64_t throws_at, uint64_t end, std::thread::id spared)
      : ExtentCursor({.capacity = capacity, .granularity = 1}),
        throws_at_(throws_at),
        end_(end),
        spared_(spared) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    batch.push_back({position_, 1});
    position_ += 64;
    if (position_ > throws_at_ && std::this_thread::get_id() != spared_) throw Exception();
    return position_ >= end_ ? capacity() : position_;
  }
  const uint64_t throws_at_;
  const uint64_t end_;
  const std::thread::id spared_;
  uint64_t position_ = 0;
};

constexpr uint64_t kThrowing = 64 * 1000;

template <typename Exception>
ParallelParts ThrowingParts(uint64_t throws_at) {
  ParallelParts parts;
  parts.make = [throws_at, spared = std::this_thread::get_id()](uint64_t end) {
    return std::make_unique<ThrowingCursor<Exception>>(kThrowing, throws_at, end, spared);
  };
  parts.first_blocks = parts.min_blocks = parts.max_blocks = 64 * 5;
  return parts;
}

// Reads the extents up to the error. The error must be sticky.
template <typename Exception>
void ExpectErrorInItsTurn(uint64_t throws_at, absl::StatusCode code) {
  PromptExecutor executor;
  auto cursor = MakeParallelCursor(ThrowingParts<Exception>(throws_at), kThrowing, 1, executor, 2);
  for (int round = 0; round < 2; ++round) {
    ExtentBatch batch;
    uint64_t next = 0;
    absl::StatusOr<Step> step = Step::kMore;
    while (step.ok() && *step == Step::kMore) {
      step = cursor->Next(batch);
      for (size_t i = 0; i < batch.size(); ++i, next += 64) {
        ASSERT_EQ(batch[i], (Extent{next, 1}));
      }
    }
    EXPECT_EQ(step.status().code(), code) << step.status();
    EXPECT_EQ(next, throws_at / 64 * 64);
    EXPECT_EQ(cursor->Next(batch).status().code(), code);
    // Waits for the running tasks.
    ASSERT_OK(cursor->Seek(0));
  }
}

TEST(ParallelCursorTest, WhatAWorkerThrowsIsAnErrorInItsTurn) {
  // Workers take the first part first.
  for (const uint64_t throws_at : {uint64_t{0}, uint64_t{64 * 3}}) {
    ExpectErrorInItsTurn<std::bad_alloc>(throws_at, absl::StatusCode::kResourceExhausted);
    ExpectErrorInItsTurn<std::exception>(throws_at, absl::StatusCode::kInternal);
  }
}

// An exception on the caller's own thread reaches the caller, and no one waits for that part later.
TEST(ParallelCursorTest, WhatTheCallerThrowsIsTheCallers) {
  DeadExecutor dead;
  ParallelParts parts = ThrowingParts<std::bad_alloc>(64 * 7);
  parts.make = [](uint64_t end) {
    return std::make_unique<ThrowingCursor<std::bad_alloc>>(kThrowing, 64 * 7, end,
                                                            std::thread::id());
  };
  auto cursor = MakeParallelCursor(std::move(parts), kThrowing, 1, dead, 3);
  for (int round = 0; round < 2; ++round) {
    EXPECT_THROW((void)test::Drain(*cursor), std::bad_alloc);
    ExtentBatch batch;
    EXPECT_EQ(cursor->Next(batch).status().code(), absl::StatusCode::kInternal);
    ASSERT_OK(cursor->Seek(0));
  }
}

// Lets the two threads of the test below meet.
struct Meeting {
  std::atomic<bool> worker_is_there = false;
  std::atomic<bool> caller_threw = false;
  const std::thread::id caller = std::this_thread::get_id();

  static void Say(std::atomic<bool>& what) {
    what = true;
    what.notify_all();
  }
};

// Starts a thread per task and returns once one is running.
class MeetingExecutor final : public Executor {
 public:
  explicit MeetingExecutor(Meeting& meeting) : meeting_(meeting) {}
  ~MeetingExecutor() override {
    for (std::thread& thread : threads_) thread.join();
  }
  MeetingExecutor(const MeetingExecutor&) = delete;
  MeetingExecutor& operator=(const MeetingExecutor&) = delete;
  void Schedule(std::function<void()> task) override {
    threads_.emplace_back(std::move(task));
    meeting_.worker_is_there.wait(false);
  }

 private:
  Meeting& meeting_;
  std::vector<std::thread> threads_;
};

// Reports nothing until the caller has thrown; the caller always throws.
class MeetingCursor final : public ExtentCursor {
 public:
  MeetingCursor(Meeting& meeting, uint64_t end)
      : ExtentCursor({.capacity = kThrowing, .granularity = 1}), meeting_(meeting), end_(end) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (std::this_thread::get_id() == meeting_.caller) {
      Meeting::Say(meeting_.caller_threw);
      throw std::bad_alloc();
    }
    Meeting::Say(meeting_.worker_is_there);
    meeting_.caller_threw.wait(false);
    batch.push_back({position_, 1});
    position_ += 64;
    return position_ >= end_ ? capacity() : position_;
  }
  Meeting& meeting_;
  const uint64_t end_;
  uint64_t position_ = 0;
};

// The caller works on later parts while another thread has the first.
TEST(ParallelCursorTest, WhatTheCallerThrowsReadingAheadIsAnErrorInItsTurn) {
  Meeting meeting;
  MeetingExecutor executor(meeting);
  ParallelParts parts;
  parts.make = [&meeting](uint64_t end) { return std::make_unique<MeetingCursor>(meeting, end); };
  parts.first_blocks = parts.min_blocks = parts.max_blocks = 64 * 5;
  auto cursor = MakeParallelCursor(std::move(parts), kThrowing, 1, executor, 2);
  ExtentBatch batch;
  for (uint64_t next = 0; next < 64 * 5; next += 64) {
    ASSERT_OK(cursor->Next(batch));
    ASSERT_EQ(batch.size(), 1U);
    EXPECT_EQ(batch[0], (Extent{next, 1}));
  }
  EXPECT_EQ(cursor->Next(batch).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ParallelCursorTest, WorkersThatCouldNotBeCalledAreCalledAgain) {
  PromptExecutor executor;
  executor.throws_at = 1;
  auto cursor =
      MakeParallelCursor(ThrowingParts<std::bad_alloc>(kThrowing), kThrowing, 1, executor, 2);
  EXPECT_THROW((void)test::Drain(*cursor), std::bad_alloc);
  ASSERT_OK(cursor->Seek(0));
  EXPECT_EQ(test::Drain(*cursor)->size(), kThrowing / 64);
  EXPECT_GT(executor.scheduled, 1);
}

// A batch is consumed in pieces, then whole, then in pieces again. Each `step`-th block is set:
// workers leave a dense volume to the caller, and fill the batches of a sparse one.
void ReadInBatchesThatChange(uint64_t step_blocks) {
  PromptExecutor executor;
  const uint64_t blocks = step_blocks << 17;
  std::vector<uint8_t> bytes(blocks / 8);
  for (uint64_t at = 0; at < blocks; at += step_blocks) {
    bytes[at / 8] = static_cast<uint8_t>(bytes[at / 8] | 1U << at % 8);
  }
  ASSERT_OK_AND_ASSIGN(const auto view, BitmapView::Create(bytes, 0, blocks));
  ParallelParts parts = SmallParts(view, blocks, 1);
  parts.first_blocks = parts.min_blocks = parts.max_blocks =
      8 * step_blocks * ExtentBatch::kDefaultCapacity;
  auto cursor = MakeParallelCursor(parts, blocks, 1, executor, 3);
  constexpr size_t kDefault = ExtentBatch::kDefaultCapacity;
  for (const std::vector<size_t>& sizes :
       {std::vector<size_t>{7, kDefault}, {kDefault, 1, kDefault}, {kDefault, kDefault, 2000}}) {
    ASSERT_OK(cursor->Seek(0));
    uint64_t next = 0;
    absl::StatusOr<Step> step = Step::kMore;
    for (size_t i = 0; step.ok() && *step == Step::kMore; ++i) {
      ExtentBatch batch(sizes[i % sizes.size()]);
      step = cursor->Next(batch);
      for (size_t k = 0; k < batch.size(); ++k, next += step_blocks) {
        ASSERT_EQ(batch[k], (Extent{next, 1}));
      }
    }
    ASSERT_OK(step);
    EXPECT_EQ(next, blocks);
  }
}

TEST(ParallelCursorTest, BatchesMayChangeTheirSizeAtAnyTime) {
  for (const uint64_t step_blocks : {uint64_t{2}, uint64_t{64}})
    ReadInBatchesThatChange(step_blocks);
}

TEST(ParallelCursorTest, CanBeDestroyedAtAnyTime) {
  ThreadPool pool(2);
  test::SeededRandom random(7);
  constexpr size_t kBlocks = size_t{1} << 18;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    // Fresh memory each time, so that a task that outlives its cursor reads freed memory.
    const auto bytes = AnyBits(kBlocks, random);
    ASSERT_OK_AND_ASSIGN(const auto view, BitmapView::Create(bytes, 0, kBlocks));
    auto cursor = MakeParallelCursor(SmallParts(view, kBlocks, 1), kBlocks, 1, pool, 3);
    ExtentBatch batch(64);
    for (uint64_t steps = random() % 20; steps > 0; --steps) ASSERT_OK(cursor->Next(batch));
    if (round % 2 == 0) {
      ASSERT_OK(cursor->Seek(random() % kBlocks));
      ASSERT_OK(cursor->Next(batch));
    }
  }
}

}  // namespace parallel_cursor_test
}  // namespace cbt
