// One step of a tracker fails at every system call and every allocation, and the owner continues:
// no write may be missing from then on, not even after a crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "cbt/change_tracker.h"
#include "map/tracker/region_log.h"
#include "tests/faults/shim/calls.h"
#include "tests/faults/support/failing_memory.h"
#include "tests/map/maps.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace {

std::string watched;
// Calls before the one that fails; negative: none fails.
std::atomic<int64_t> calls_left = -1;
std::atomic<bool> all_after = false;
std::atomic<bool> call_failed = false;
// If true, every other pwrite() is interrupted, and the rest write half of what was requested.
std::atomic<bool> short_writes = false;
std::atomic<int> writes = 0;

}  // namespace

const char* WatchedDirectory() { return watched.c_str(); }
bool WatchSockets() { return false; }

Verdict Before(const Attempt& attempt) {
  if (short_writes && std::string_view(attempt.call.name) == "pwrite") {
    errno = EINTR;
    return writes++ % 2 == 0 ? Verdict::kFail : Verdict::kShort;
  }
  const bool now = calls_left >= 0 && calls_left-- == 0;
  if (!now && !(all_after && call_failed)) return Verdict::kPass;
  call_failed = true;
  errno = EIO;
  return Verdict::kFail;
}

void After(const Attempt&, long) {}

namespace {

constexpr uint64_t kG = 4096;
constexpr uint64_t kBlocks = 100;

// Makes the n-th system call on the tracker's directory fail.
class FailCall {
 public:
  FailCall(int64_t n, bool others) {
    call_failed = false;
    all_after = others;
    calls_left = n - 1;
  }
  ~FailCall() {
    calls_left = -1;
    all_after = false;
    call_failed = false;
  }
  FailCall(const FailCall&) = delete;
  FailCall& operator=(const FailCall&) = delete;
};

using Set = std::set<uint64_t>;

// One region per block, so that no region masks a missing block.
TrackerOptions OptionsFor(const std::string& directory) {
  return {.geometry = {kBlocks * kG, kG},
          .volume = "volume",
          .base = "monday",
          .directory = directory,
          .region_bytes = kG};
}

// A tracker and the writes that it must have.
class Watched {
 public:
  explicit Watched(bool on_disk) {
    if (on_disk) options_.directory = dir_ / "tracker";
    watched = dir_.path();
    tracker_ = ValueOf(ChangeTracker::Create(options_));
    since_["monday"] = {};
  }

  absl::Status Mark(uint64_t block) {
    absl::Status status = tracker_->Mark({block * kG, 1});
    const Undisturbed ours;
    if (status.ok()) Announced(block);
    return status;
  }

  // A write that stays in flight.
  absl::Status Begin(uint64_t block) {
    absl::StatusOr<TrackedWrite> write = tracker_->Begin({block * kG, 1});
    const Undisturbed ours;
    if (!write.ok()) return write.status();
    Announced(block);
    in_flight_.insert(block);
    writes_.push_back(*std::move(write));
    return absl::OkStatus();
  }

  absl::Status OpenEpoch(const std::string& name) {
    absl::Status status = tracker_->OpenEpoch(name);
    const Undisturbed ours;
    if (status.ok()) {
      until_[name] = since_;
      since_[name] = in_flight_;
    }
    return status;
  }

  absl::Status CloseEpoch() {
    const absl::StatusOr<ChangeMap> map = tracker_->CloseEpoch();
    const Undisturbed ours;
    if (!map.ok()) return map.status();
    const ChangeMapIdentity& identity = map->identity();
    EXPECT_TRUE(until_.contains(identity.target)) << identity.target << " was never opened";
    EXPECT_TRUE(HasBlocks(*map, until_[identity.target][identity.base]))
        << identity.base << " to " << identity.target;
    closed_epoch_ = identity;
    return absl::OkStatus();
  }

  absl::Status Acknowledge() { return tracker_->Acknowledge(closed_epoch_); }

  absl::Status CancelEpoch() { return tracker_->CancelEpoch(); }
  absl::Status Checkpoint() { return tracker_->Checkpoint(); }
  absl::Status Close() {
    closed_ = true;
    return tracker_->Close();
  }
  bool closed() const { return closed_; }
  size_t open_epochs() const {
    const std::vector<ChangeTracker::Epoch> epochs = tracker_->epochs();
    return epochs.size() - (epochs.front().closed ? 1 : 0);
  }

  void Check(ChangeTracker& tracker) const {
    std::vector<ChangeTracker::Epoch> epochs = tracker.epochs();
    if (epochs.front().closed) {
      const std::string& base = epochs[0].base;
      const std::string& target = epochs[1].base;
      ASSERT_TRUE(until_.contains(target) && until_.at(target).contains(base)) << target;
      if (!closed_) {
        const absl::StatusOr<ChangeMap> map = tracker.CloseEpoch();
        ASSERT_OK(map);
        EXPECT_TRUE(HasBlocks(*map, until_.at(target).at(base))) << base << " to " << target;
      }
      epochs.erase(epochs.begin());
    }
    const std::string base = epochs.front().base;
    const absl::StatusOr<ChangeMap> map = tracker.Changes();
    ASSERT_OK(map);
    EXPECT_EQ(map->identity().base, base);
    ASSERT_TRUE(since_.contains(base)) << base << " was never opened";
    EXPECT_TRUE(HasBlocks(*map, since_.at(base))) << "since " << base;
  }

  // Checks the current state, and the state after that many crashes.
  void Check(int crashes) const {
    Check(*tracker_);
    if (options_.directory.empty()) return;
    TrackerOptions copy = options_;
    copy.directory = dir_ / "copy";
    std::filesystem::remove_all(copy.directory);
    std::filesystem::copy(options_.directory, copy.directory);
    for (int i = 0; i < crashes; ++i) {
      const auto recovered = ChangeTracker::Recover(copy);
      ASSERT_OK(recovered);
      Check(**recovered);
    }
  }

 private:
  void Announced(uint64_t block) {
    for (auto& [name, blocks] : since_) blocks.insert(block);
  }

  const TempDir dir_;
  TrackerOptions options_ = OptionsFor("");
  std::unique_ptr<ChangeTracker> tracker_;
  std::vector<TrackedWrite> writes_;
  bool closed_ = false;  // the tracker
  ChangeMapIdentity closed_epoch_;
  Set in_flight_;
  std::map<std::string, Set> since_;  // announced since a snapshot
  // The same, up to the start of the next snapshot.
  std::map<std::string, std::map<std::string, Set>> until_;
};

using Step = absl::Status (*)(Watched&);
struct Named {
  const char* name;
  Step step;
};

constexpr Named kSteps[] = {
    {"mark", [](Watched& w) { return w.Mark(60); }},
    {"begin", [](Watched& w) { return w.Begin(61); }},
    {"open", [](Watched& w) { return w.OpenEpoch("wednesday"); }},
    {"close", [](Watched& w) { return w.CloseEpoch(); }},
    {"acknowledge", [](Watched& w) { return w.Acknowledge(); }},
    {"cancel", [](Watched& w) { return w.CancelEpoch(); }},
    {"checkpoint", [](Watched& w) { return w.Checkpoint(); }},
    {"close the tracker", [](Watched& w) { return w.Close(); }},
};

// Steps that may precede the failing one.
const std::vector<Step> kBefore[] = {
    {},
    {[](Watched& w) { return w.OpenEpoch("tuesday"); }, [](Watched& w) { return w.Mark(20); }},
    {[](Watched& w) { return w.OpenEpoch("tuesday"); }, [](Watched& w) { return w.Mark(20); },
     [](Watched& w) { return w.CloseEpoch(); }, [](Watched& w) { return w.Mark(21); }},
    {[](Watched& w) { return w.OpenEpoch("tuesday"); }, [](Watched& w) { return w.Mark(20); },
     [](Watched& w) { return w.CloseEpoch(); }, [](Watched& w) { return w.Acknowledge(); },
     [](Watched& w) { return w.Mark(21); }},
};

// Steps that the owner may take afterwards; refused ones are skipped.
const std::vector<Step> kAfter[] = {
    {},
    {[](Watched& w) { return w.CloseEpoch(); }, [](Watched& w) { return w.Acknowledge(); }},
    {[](Watched& w) { return w.CancelEpoch(); }},
    {[](Watched& w) { return w.Checkpoint(); }, [](Watched& w) { return w.CloseEpoch(); }},
    {[](Watched& w) { return w.OpenEpoch("wednesday"); }, [](Watched& w) { return w.Mark(30); },
     [](Watched& w) { return w.CloseEpoch(); }, [](Watched& w) { return w.Mark(31); },
     [](Watched& w) { return w.Acknowledge(); }, [](Watched& w) { return w.OpenEpoch("thursday"); },
     [](Watched& w) { return w.Mark(32); }, [](Watched& w) { return w.CancelEpoch(); }},
    {[](Watched& w) { return w.Checkpoint(); }, [](Watched& w) { return w.Close(); },
     [](Watched& w) { return w.CancelEpoch(); }, [](Watched& w) { return w.Close(); }},
};

// Runs a failing step between others. Returns false if nothing failed in it.
template <typename Fault>
bool Fails(bool on_disk, const std::vector<Step>& before, const Named& step,
           const std::vector<Step>& after, Fault fault) {
  Watched w(on_disk);
  EXPECT_OK(w.Mark(1));
  EXPECT_OK(w.Begin(2));
  for (const Step& each : before) EXPECT_OK(each(w));
  const bool failed = fault([&] { return step.step(w); });
  w.Check(1);
  for (const Step& each : after) {
    each(w).IgnoreError();
    w.Check(1);
  }
  if (!w.closed()) {
    // The failures are over: every state can be left.
    const bool one = w.open_epochs() == 1 || w.CancelEpoch().ok();
    // A failed OpenEpoch() needs no more than that; a failed write may have broken the log.
    if (std::string_view(step.name) == "open") {
      EXPECT_TRUE(one);
    } else {
      EXPECT_TRUE(one || (w.Checkpoint().ok() && w.CancelEpoch().ok()));
    }
    // A broken log refuses writes until a checkpoint repairs it.
    EXPECT_TRUE(w.Mark(40).ok() || (on_disk && w.Checkpoint().ok() && w.Mark(40).ok()));
    EXPECT_OK(w.Begin(41));
  }
  w.Check(2);
  return failed;
}

template <typename MakeFault>
void FailEverywhere(bool on_disk, MakeFault make) {
  // Files are synced tens of thousands of times; lost disk writes are tested elsewhere.
  if (::access("/dev/shm", W_OK | X_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  for (const auto& before : kBefore) {
    for (const Named& step : kSteps) {
      for (const auto& after : kAfter) {
        for (const bool others : {false, true}) {
          int64_t n = 1;
          while (Fails(on_disk, before, step, after, make(n, others))) {
            if (testing::Test::HasFailure()) break;
            ++n;
          }
          ASSERT_FALSE(testing::Test::HasFailure())
              << step.name << " after " << before.size() << " steps, " << after.size()
              << " steps after it, failure " << n << (others ? " and all later ones" : "");
        }
      }
    }
  }
}

const auto kFailCall = [](int64_t n, bool others) {
  return [n, others](const auto& step) {
    const FailCall fault(n, others);
    step().IgnoreError();
    return call_failed.load();
  };
};

const auto kFailAllocation = [](int64_t n, bool others) {
  return [n, others](const auto& step) {
    const FailAllocation fault(n, others);
    try {
      step().IgnoreError();
    } catch (const std::bad_alloc&) {
      return true;
    }
    return fault.has_failed();
  };
};

TEST(TrackerFaults, NoWriteIsLostWhicheverSystemCallFails) { FailEverywhere(true, kFailCall); }

TEST(TrackerFaults, NoWriteIsLostWhicheverAllocationFails) {
  FailEverywhere(true, kFailAllocation);
}

TEST(TrackerFaults, NoWriteIsLostInMemoryWhicheverAllocationFails) {
  FailEverywhere(false, kFailAllocation);
}

// The process ends with a write in flight while an epoch is being opened: at every system call of
// it, with all later calls failing (as in a kill) or only that one.
TEST(TrackerFaults, AttackFAWriteInFlightOutlivesAnEpochThatIsBeingOpened) {
  const auto opens = [](int64_t n, bool others, bool checkpoint) {
    const TempDir dir;
    TrackerOptions options = OptionsFor(dir / "tracker");
    watched = dir.path();
    const auto tracker = ValueOf(ChangeTracker::Create(options));
    const TrackedWrite write = ValueOf(tracker->Begin({5 * kG, 1}));
    bool failed = false;
    {
      const FailCall fault(n, others);
      tracker->OpenEpoch("tuesday").IgnoreError();
      failed = call_failed;
    }
    if (checkpoint) tracker->Checkpoint().IgnoreError();
    options.directory = dir / "copy";
    std::filesystem::copy(dir / "tracker", options.directory);
    const auto recovered = ChangeTracker::Recover(options);
    EXPECT_OK(recovered);
    if (!recovered.ok()) return false;
    if ((*recovered)->epochs().size() == 2) {
      EXPECT_OK((*recovered)->CancelEpoch());
    }
    for (const char* const day : {"wednesday", "thursday"}) {
      EXPECT_OK((*recovered)->OpenEpoch(day));
      EXPECT_TRUE(HasBlocks(ValueOf(EndEpoch(**recovered)), {5})) << day;
    }
    return failed;
  };
  if (::access("/dev/shm", W_OK | X_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  for (const bool others : {false, true}) {
    for (const bool checkpoint : {false, true}) {
      int64_t n = 1;
      while (opens(n, others, checkpoint)) ++n;
      EXPECT_GT(n, 20);
      ASSERT_FALSE(testing::Test::HasFailure()) << n << (others ? " and all later ones" : "");
    }
  }
}

// A misplaced record invalidates the log, and recovery then counts every region. No write is lost,
// so only the log itself reveals the error.
TEST(TrackerFaults, AShortWriteOfTheRegionLogContinuesWhereItStopped) {
  const TempDir dir;
  watched = dir.path();
  const absl::StatusOr<Directory> directory = Directory::Open(dir.path());
  ASSERT_TRUE(directory.ok()) << directory.status();
  const RegionLogHeader header = {.tracker = 1,
                                  .geometry = {kBlocks * kG, kG},
                                  .region_bytes = kG,
                                  .epoch = 1,
                                  .number = 1,
                                  .volume = "volume",
                                  .base = "monday"};
  const auto log = RegionLog::Create(*directory, "log", header);
  ASSERT_TRUE(log.ok()) << log.status();
  std::vector<uint64_t> want;
  for (const auto& [first, last] : {std::pair(7u, 7u), {20u, 31u}, {3u, 5u}, {99u, 99u}}) {
    for (unsigned region = first; region <= last; ++region) want.push_back(region);
    writes = 0;
    short_writes = true;
    const absl::Status status = (*log)->Add(first, last);
    short_writes = false;
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_GT(writes, 4) << "regions " << first << " to " << last;
    const auto contents = RegionLog::Read(*directory, "log");
    ASSERT_TRUE(contents.ok()) << contents.status();
    EXPECT_TRUE(contents->sound);
    EXPECT_EQ(contents->regions, want);
  }
}

// While an epoch closes, writes only count in the newer one. If closing fails, both are open again
// and the older one must have them, too.
TEST(TrackerFaults, WritesWhileAnEpochFailsToCloseAreNotForgotten) {
  const TempDir dir;
  watched = dir.path();
  constexpr uint64_t kSmall = 512;
  constexpr uint64_t kMany = (uint64_t{64} << 20) / kSmall;
  ASSERT_OK_AND_ASSIGN(const auto tracker,
                       ChangeTracker::Create({.geometry = {kMany * kSmall, kSmall},
                                              .volume = "volume",
                                              .base = "monday",
                                              .directory = dir / "tracker",
                                              .region_bytes = kMany * kSmall}));
  ASSERT_OK(tracker->Mark({0, 1}));
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  ASSERT_OK(tracker->Mark({0, 1}));  // both logs have the only region
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint64_t block = 1; block < kMany; ++block) {
      ASSERT_OK(tracker->Mark({block * kSmall, 1}));
    }
    done = true;
  });
  while (!done) {
    const FailCall fault(1, true);
    EXPECT_FALSE(tracker->CloseEpoch().ok());
  }
  writer.join();
  EXPECT_EQ(ValueOf(tracker->Changes())->cardinality(), kMany);
  ASSERT_OK(tracker->CancelEpoch());
  EXPECT_EQ(ValueOf(tracker->Changes())->cardinality(), kMany);
}

// Without any fault: a closed tracker refuses this.
TEST(TrackerFaults, ATrackerThatIsClosedCancelsNoEpoch) {
  const TempDir dir;
  const TrackerOptions options = OptionsFor(dir / "tracker");
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(options));
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  ASSERT_OK(tracker->Mark({7 * kG, 1}));
  ASSERT_OK(tracker->Close());
  EXPECT_EQ(tracker->CancelEpoch().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tracker->CloseEpoch().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tracker->Acknowledge({"volume", "monday", "tuesday"}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tracker->OpenEpoch("wednesday").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(HasBlocks(ValueOf(tracker->Changes()), {7}));
}

}  // namespace
}  // namespace cbt::test
