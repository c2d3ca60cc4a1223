// A volume's background thread, with tasks of the test.
#include "programs/volume/volume_worker.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/directory.h"
#include "cbt/units.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::volume {
namespace volume_worker_test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Counts, and lets a test wait for a count.
class Counter {
 public:
  void Add() {
    const std::lock_guard<std::mutex> lock(mutex_);
    times_.push_back(Clock::now());
    changed_.notify_all();
  }
  bool Wait(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return times_.size() >= count; });
  }
  std::vector<Clock::time_point> times() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return times_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Clock::time_point> times_;
};

class VolumeWorkerTest : public testing::Test {
 protected:
  VolumeWorker::Tasks Tasks(std::chrono::seconds interval = 0s) {
    return {.finish = [this](const std::shared_ptr<SnapshotCopy>& copy) { Finish(copy); },
            .repair =
                [this] {
                  // Before a test that waits for the count changes it.
                  const bool succeeds = repairs_;
                  repaired_.Add();
                  return succeeds ? absl::OkStatus() : absl::UnavailableError("still full");
                },
            .checkpoint = [this] { checkpoints_.Add(); },
            .interval = interval};
  }
  void Finish(const std::shared_ptr<SnapshotCopy>& copy) {
    finished_.Add();
    worker_.Drop(copy);
    worker_.SetCopies({});
  }

  Counter finished_;
  Counter repaired_;
  Counter checkpoints_;
  std::atomic<bool> repairs_ = true;
  VolumeWorker worker_;  // the last: its thread calls the others
};

TEST_F(VolumeWorkerTest, RepairsWhatIsAskedForAndForgetsTheError) {
  worker_.NoteError(absl::InternalError("noted"));
  worker_.Start(Tasks());
  EXPECT_EQ(worker_.error(), "noted");
  worker_.AskForRepair(absl::UnavailableError("the log is full"));
  ASSERT_TRUE(repaired_.Wait(1));
  for (int i = 0; i < 2000 && worker_.error() != "noted"; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(worker_.error(), "noted");
}

TEST_F(VolumeWorkerTest, ARepairThatFailsIsTriedAgainAfterGrowingPauses) {
  repairs_ = false;
  worker_.Start(Tasks());
  worker_.AskForRepair(absl::UnavailableError("the log is full"));
  ASSERT_TRUE(repaired_.Wait(3));
  EXPECT_EQ(worker_.error(), "still full");
  const std::vector<Clock::time_point> times = repaired_.times();
  EXPECT_GE(times[1] - times[0], 200ms);
  EXPECT_GE(times[2] - times[1], 400ms);
  repairs_ = true;
  ASSERT_TRUE(repaired_.Wait(4));
  for (int i = 0; i < 2000 && !worker_.error().empty(); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(worker_.error(), "");
}

TEST_F(VolumeWorkerTest, CheckpointsAreTakenAtIntervals) {
  worker_.Start(Tasks(1s));
  ASSERT_TRUE(checkpoints_.Wait(2));
  const std::vector<Clock::time_point> times = checkpoints_.times();
  EXPECT_GE(times[1] - times[0], 900ms);
  worker_.Stop();
  const size_t before = checkpoints_.times().size();
  std::this_thread::sleep_for(1200ms);
  EXPECT_EQ(checkpoints_.times().size(), before);
}

TEST_F(VolumeWorkerTest, CopiesAreMadeInTurnsAndWaitedFor) {
  const test::TempDir scratch;
  scratch.Write("data", std::string(2 * kMiB, 'x'));
  const auto directory = test::ValueOf(Directory::Open(scratch.path()));
  const auto data = test::ValueOf(directory.OpenFile("data", O_RDONLY));
  worker_.Start(Tasks());
  EXPECT_TRUE(worker_.WaitForCopies(0));
  const auto copy = test::ValueOf(
      SnapshotCopy::Begin(directory, "one", 2 * kMiB, /*created_ns=*/1, data.number()));
  worker_.SetCopies({copy});
  ASSERT_TRUE(finished_.Wait(1));
  EXPECT_TRUE(worker_.WaitForCopies(20));
  EXPECT_FALSE(copy->Continue(1));
  EXPECT_EQ(copy->failed(), 0);
}

TEST_F(VolumeWorkerTest, StopsWhatWasNeverStarted) {
  worker_.SetCopies({nullptr});
  EXPECT_FALSE(worker_.WaitForCopies(0));
  worker_.Drop(nullptr);
  EXPECT_TRUE(worker_.WaitForCopies(0));
  worker_.Stop();
}

}  // namespace volume_worker_test
}  // namespace cbt::volume
