// Data that others lost when writes and snapshots met; the numbers are those of table.csv.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/change_tracker.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/figures.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace tracking_test {

using test::ValueOf;

constexpr uint64_t kG = 4096;

// A disk of versions with its tracker and snapshots, driven step by step: writes begin, reach the
// disk and end; epochs open, snapshots are taken, epochs close.
class Model {
 public:
  static constexpr size_t kBlocks = 8;
  static constexpr size_t kWriters = 4;
  using Disk = std::array<uint64_t, kBlocks>;

  explicit Model(size_t writes_in_flight)
      : tracker_(ValueOf(ChangeTracker::Create({.geometry = {kBlocks * kG, kG},
                                                .region_bytes = kG,
                                                .writes_in_flight = writes_in_flight}))),
        all_(ValueOf(ChangeMap::Empty({kBlocks * kG, kG}))) {}

  void Begin(size_t writer, size_t first, size_t count) {
    Write& write = writes_[writer];
    write = {first, count};
    absl::StatusOr<TrackedWrite> tracked = tracker_->Begin({first * kG, count * kG});
    ASSERT_OK(tracked);
    tracked_[writer] = *std::move(tracked);
  }
  void ReachDisk(size_t writer) {
    for (size_t b = 0; b < writes_[writer].count; ++b) ++disk_[writes_[writer].first + b];
  }
  void End(size_t writer) { tracked_[writer].End(); }

  void Open() { ASSERT_OK(tracker_->OpenEpoch("next")); }
  void Snapshot() { snapshot_ = disk_; }
  void Cancel() { ASSERT_OK(tracker_->CancelEpoch()); }
  // What differs between two snapshots is in the epoch between them.
  void Close() {
    const ChangeMap map = ValueOf(test::EndEpoch(*tracker_));
    for (size_t b = 0; b < kBlocks; ++b) {
      if (snapshot_[b] != last_[b] && !map->Contains(b)) ++missed_;
    }
    last_ = snapshot_;
    ASSERT_OK(all_.UniteWith(map));
  }

  // One more snapshot at rest: nothing was missed, and nothing written is in neither epoch.
  void Finish() {
    Open();
    Snapshot();
    Close();
    ASSERT_OK(all_.UniteWith(ValueOf(tracker_->Changes())));
    for (size_t b = 0; b < kBlocks; ++b) EXPECT_TRUE(disk_[b] == 0 || all_->Contains(b)) << b;
    EXPECT_EQ(missed_, 0);
  }

 private:
  struct Write {
    size_t first = 0;
    size_t count = 0;
  };
  const std::unique_ptr<ChangeTracker> tracker_;
  std::array<TrackedWrite, kWriters> tracked_;
  std::array<Write, kWriters> writes_;
  Disk disk_{};
  Disk snapshot_{};
  Disk last_{};
  ChangeMap all_;
  int missed_ = 0;
};

// Two writes of three steps each and a snapshot of three, in every order.
TEST(Disasters, D2AMapThatIsRotatedWhileWritesAreInFlightMissesNone) {
  int orders = 0;
  for (const bool same_blocks : {false, true}) {
    for (const bool cancelled : {false, true}) {
      for (const size_t places : {size_t{1}, size_t{64}}) {
        std::vector<int> order = {0, 0, 0, 1, 1, 1, 2, 2, 2};
        do {
          Model model(places);
          std::array<int, 3> step{};
          for (const int who : order) {
            const int at = step[static_cast<size_t>(who)]++;
            const auto writer = static_cast<size_t>(who);
            if (who < 2) {
              if (at == 0) model.Begin(writer, same_blocks ? 3 : 2 * writer, 2);
              if (at == 1) model.ReachDisk(writer);
              if (at == 2) model.End(writer);
            } else {
              if (at == 0) model.Open();
              if (at == 1 && !cancelled) model.Snapshot();
              if (at == 2) cancelled ? model.Cancel() : model.Close();
            }
          }
          model.Finish();
          ++orders;
          if (HasFailure()) {
            FAIL() << "in order " << testing::PrintToString(order) << ", places " << places;
          }
        } while (std::next_permutation(order.begin(), order.end()));
      }
    }
  }
  EXPECT_EQ(orders, 8 * 1680);
}

// Longer random histories: CBT_TEST_SCALE=25 takes a million steps.
TEST(Disasters, D2RandomInterleavingsOfWritesAndSnapshotsMissNone) {
  constexpr uint64_t kSeed = 2;
  test::SeededRandom random(kSeed);
  const int64_t stories = 400 * test::TestScale();
  int64_t steps = 0;
  for (int64_t story = 0; story < stories; ++story) {
    Model model(1 + random() % 3);
    std::array<int, Model::kWriters> at{};
    int epoch = 0;
    for (int n = 0; n < 100; ++n, ++steps) {
      const size_t who = random() % (Model::kWriters + 1);
      if (who == Model::kWriters) {
        if (epoch == 0) model.Open();
        if (epoch == 1) model.Snapshot();
        if (epoch == 2) random() % 5 == 0 ? model.Cancel() : model.Close();
        epoch = (epoch + 1) % 3;
        continue;
      }
      int& step = at[who];
      const size_t first = random() % Model::kBlocks;
      if (step == 0) model.Begin(who, first, 1 + random() % (Model::kBlocks - first));
      if (step == 1) model.ReachDisk(who);
      if (step == 2) model.End(who);
      step = (step + 1) % 3;
    }
    if (epoch == 1) model.Snapshot();
    if (epoch != 0) model.Close();
    for (size_t who = 0; who < Model::kWriters; ++who) {
      if (at[who] == 1) model.ReachDisk(who);
      if (at[who] != 0) model.End(who);
    }
    model.Finish();
    if (HasFailure()) FAIL() << "in story " << story;
  }
  std::cout << steps << " steps\n";
}

// Threads concurrently mark adjacent blocks that share a word of the map: each passes over all the
// words of a stretch once for each of its bits.
TEST(Disasters, D2MarksThatMeetInOneWordOfTheMapAreAllKept) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kStretches = 64;
  constexpr uint64_t kStretch = uint64_t{1} << 16;
  ASSERT_OK_AND_ASSIGN(
      const auto tracker,
      ChangeTracker::Create({.geometry = {kStretches * kStretch * kG, kG}, .region_bytes = kG}));
  std::barrier meet(kThreads);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t begin = 0; begin < kStretches * kStretch; begin += kStretch) {
        meet.arrive_and_wait();
        for (uint64_t bit = t; bit < 64; bit += kThreads) {
          for (uint64_t word = begin; word < begin + kStretch; word += 64) {
            ASSERT_OK(tracker->Mark({(word + bit) * kG, 1}));
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ValueOf(tracker->Changes())->cardinality(), kStretches * kStretch);
}

// Writers never stop; snapshot, delta, its file, apply, compare, round after round.
TEST(Disasters, D10ABackupThatFollowsAVolumeUnderWritesIsAlwaysTheSnapshot) {
  constexpr uint64_t kBlocks = 2000;
  ASSERT_OK_AND_ASSIGN(
      const auto tracker,
      ChangeTracker::Create(
          {.geometry = {kBlocks * kG, kG}, .volume = "vol", .base = "s0", .writes_in_flight = 2}));
  std::vector<std::atomic<uint64_t>> disk(kBlocks);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> written{0};
  std::vector<std::thread> writers;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    writers.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      while (!stop) {
        const uint64_t begin = random() % kBlocks;
        const uint64_t end = std::min(kBlocks, begin + 1 + random() % 3);
        absl::StatusOr<TrackedWrite> write = tracker->Begin({begin * kG, (end - begin) * kG});
        ASSERT_OK(write);
        if (random() % 4 == 0) std::this_thread::yield();
        for (uint64_t b = begin; b < end; ++b) disk[b].fetch_add(1);
        if (random() % 4 == 0) std::this_thread::yield();
        write->End();
        written.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  // Without this, a busy machine may let no thread write around a snapshot.
  const auto let_them_write = [&](uint64_t writes) {
    const uint64_t so_far = written;
    while (written < so_far + writes) std::this_thread::yield();
  };
  std::vector<uint64_t> replica(kBlocks);
  uint64_t copied = 0;
  std::string wrong;
  for (int round = 1; round <= 100 && wrong.empty(); ++round) {
    let_them_write(30);
    ASSERT_OK(tracker->OpenEpoch(absl::StrCat("s", round)));
    std::vector<uint64_t> snapshot(kBlocks);
    for (uint64_t b = 0; b < kBlocks; ++b) {
      if (b == kBlocks / 2) let_them_write(10);
      snapshot[b] = disk[b];
    }
    let_them_write(10);
    ASSERT_OK_AND_ASSIGN(const ChangeMap delta, test::EndEpoch(*tracker));
    ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> file, EncodeChangeMap(delta));
    ASSERT_OK_AND_ASSIGN(const ChangeMap read, DecodeChangeMap(file, "delta"));
    const absl::Status applied =
        ForEachBatch(*MakeChangeMapCursor(read), [&](const ExtentBatch& batch) {
          for (size_t i = 0; i < batch.size(); ++i) {
            for (uint64_t b = batch[i].offset / kG; b * kG < batch[i].end(); ++b, ++copied) {
              replica[b] = snapshot[b];
            }
          }
          return absl::OkStatus();
        });
    ASSERT_OK(applied);
    const auto [there, expected] = std::ranges::mismatch(replica, snapshot);
    if (there != replica.end()) {
      wrong = absl::StrCat("round ", round, ", block ", there - replica.begin(),
                           ": expected version ", *expected, ", found ", *there);
    }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(wrong, "");
  EXPECT_GT(copied, 4000u);
}

}  // namespace tracking_test
}  // namespace cbt
