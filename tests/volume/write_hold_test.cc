// Writes to volumes are held, for snapshots of one moment.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "programs/volume/control.h"
#include "programs/volume/tracked_volume.h"
#include "programs/volume/write_gate.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::volume {
namespace write_hold_test {

using test::ValueOf;
using namespace units;

constexpr std::chrono::milliseconds kWhile(50);
constexpr int kRounds = 20;

// A thread that passes a gate, and what it has got.
class Passing {
 public:
  explicit Passing(WriteGate& gate)
      : thread_([this, &gate] {
          if (gate.Enter()) {
            passed_.store(true);
            gate.Leave();
          }
        }) {}
  ~Passing() { thread_.join(); }
  bool passed() const { return passed_.load(); }
  bool StaysOut() const {
    std::this_thread::sleep_for(kWhile);
    return !passed();
  }
  bool ComesThrough() const {
    for (int i = 0; i < 6000 && !passed(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return passed();
  }

 private:
  std::atomic<bool> passed_{false};
  std::thread thread_;
};

TEST(WriteGateTest, OpensAfterTheLastOfSeveralHolds) {
  WriteGate gate;
  gate.Hold();
  gate.Hold();
  const Passing passing(gate);
  gate.Open();
  EXPECT_TRUE(gate.held());
  EXPECT_TRUE(passing.StaysOut());
  { const GateHold third(gate); }
  EXPECT_TRUE(passing.StaysOut());
  gate.Open();
  EXPECT_FALSE(gate.held());
  EXPECT_TRUE(passing.ComesThrough());
}

TEST(WriteGateTest, HoldReturnsOnceNoWriteIsInside) {
  WriteGate gate;
  ASSERT_TRUE(gate.Enter());
  std::atomic<bool> held{false};
  std::thread holder([&] {
    gate.Hold();
    held.store(true);
  });
  std::this_thread::sleep_for(kWhile);
  EXPECT_FALSE(held.load());
  gate.Leave();
  holder.join();
  gate.Open();
}

TEST(WriteGateTest, OneThatWasShutStaysShut) {
  WriteGate gate;
  gate.Hold();
  gate.Shut();
  EXPECT_FALSE(gate.Enter());
  gate.Open();
  EXPECT_FALSE(gate.Enter());
  gate.Hold();
  gate.Open();
  EXPECT_FALSE(gate.Enter());
}

class WriteHoldTest : public testing::Test {
 protected:
  WriteHoldTest() {
    for (const char* const name : {"a", "b"}) {
      test::RequireOk(TrackedVolume::Create(directory_ / name, 1_MiB, {.granularity = 512}));
      volumes_.push_back(ValueOf(TrackedVolume::Open(directory_ / name)));
      servers_.push_back(ValueOf(ControlServer::Start(*volumes_.back(), {.path = SocketOf(name)})));
    }
  }
  std::string SocketOf(const std::string& name) const { return directory_ / (name + ".s"); }
  std::unique_ptr<ControlClient> Connect(const std::string& name) const {
    return ValueOf(ControlClient::Connect(SocketOf(name), 30));
  }
  static absl::Status Put(TrackedVolume& volume, uint64_t number) {
    std::vector<uint8_t> bytes(512);
    std::memcpy(bytes.data(), &number, sizeof(number));
    return volume.Write(0, bytes, Durability::kFlushed);
  }
  static uint64_t NumberIn(const TrackedVolume& volume, const std::string& snapshot) {
    EXPECT_TRUE(volume.WaitForCopies(60));
    const auto bytes = test::ReadFile<std::vector<uint8_t>>(ValueOf(volume.SnapshotPath(snapshot)));
    uint64_t number = 0;
    std::memcpy(&number, bytes.data(), sizeof(number));
    return number;
  }

  test::TempDir directory_;
  std::vector<std::unique_ptr<TrackedVolume>> volumes_;
  std::vector<std::unique_ptr<ControlServer>> servers_;
};

// Writes 1, 2, 3 ... to the first volume and then to the second, until it is destroyed.
class Counting {
 public:
  Counting(TrackedVolume& first, TrackedVolume& second)
      : thread_([&first, &second, this] {
          while (!ending_.load()) {
            const uint64_t next = written_.load() + 1;
            for (TrackedVolume* const volume : {&first, &second}) {
              std::vector<uint8_t> bytes(512);
              std::memcpy(bytes.data(), &next, sizeof(next));
              if (!volume->Write(0, bytes, Durability::kCached).ok()) failed_.store(true);
            }
            written_.store(next);
          }
        }) {}
  ~Counting() { End(); }
  void End() {
    ending_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  void WaitForAnother() const {
    for (const uint64_t now = written_.load(); written_.load() == now && !failed();) {
      std::this_thread::yield();
    }
  }
  bool failed() const { return failed_.load(); }
  uint64_t written() const { return written_.load(); }

 private:
  std::atomic<uint64_t> written_{0};
  std::atomic<bool> ending_{false};
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

TEST_F(WriteHoldTest, SnapshotsOfVolumesThatAreHeldAreOfOneMoment) {
  Counting counting(*volumes_[0], *volumes_[1]);
  for (int round = 0; round < kRounds; ++round) {
    counting.WaitForAnother();
    const std::string id = absl::StrCat("s", round);
    // The volume that is written to first is cut first and held last, or the other way round.
    std::array<std::string, 2> order = {"a", "b"};
    if (round % 2 == 1) std::swap(order[0], order[1]);
    const auto first = Connect(order[0]);
    auto second = Connect(order[1]);
    ASSERT_OK(second->HoldWrites(30));
    ASSERT_OK(first->HoldWrites(30));
    ASSERT_OK(second->TakeSnapshot(id));
    second.reset();  // what comes after its cut need not wait
    ASSERT_OK(first->TakeSnapshot(id));
  }
  counting.End();
  EXPECT_FALSE(counting.failed());
  for (int round = 0; round < kRounds; ++round) {
    const std::string id = absl::StrCat("s", round);
    const uint64_t first = NumberIn(*volumes_[0], id);
    const uint64_t second = NumberIn(*volumes_[1], id);
    EXPECT_TRUE(first == second || first == second + 1) << first << " " << second;
  }
  // A change was never missed: the last number is there, and counts as changed.
  ASSERT_OK(volumes_[0]->TakeSnapshot("last"));
  EXPECT_EQ(NumberIn(*volumes_[0], "last"), counting.written());
}

TEST_F(WriteHoldTest, EndsWithTheConnectionOrItsTime) {
  for (const bool time : {false, true}) {
    auto client = Connect("a");
    ASSERT_OK(client->HoldWrites(time ? 1 : 60));
    std::atomic<bool> written{false};
    std::thread writer([&] {
      EXPECT_OK(Put(*volumes_[0], 1));
      written.store(true);
    });
    std::this_thread::sleep_for(kWhile);
    EXPECT_FALSE(written.load());
    if (!time) client.reset();
    writer.join();
    // What is asked too late has no answer, and so does not count.
    if (!time) continue;
    EXPECT_TRUE(absl::IsUnavailable(client->TakeSnapshot("late").status()));
  }
  EXPECT_TRUE(volumes_[0]->snapshots().empty());
}

TEST_F(WriteHoldTest, OtherRequestsGoOnAndRevertDoesNot) {
  ASSERT_OK(Put(*volumes_[0], 7));
  const auto client = Connect("a");
  ASSERT_OK(client->TakeSnapshot("monday"));
  ASSERT_TRUE(volumes_[0]->WaitForCopies(60));
  ASSERT_OK(client->HoldWrites(60));
  ASSERT_OK(client->HoldWrites(60));  // once more is no more
  std::vector<uint8_t> byte(1);
  EXPECT_OK(volumes_[0]->Read(0, byte));
  EXPECT_EQ(byte[0], 7);
  EXPECT_OK(volumes_[0]->Flush());
  EXPECT_TRUE(absl::IsFailedPrecondition(client->Revert("monday")));
  EXPECT_TRUE(absl::IsFailedPrecondition(Connect("a")->Revert("monday")));
  EXPECT_OK(client->Resize(2_MiB));
  EXPECT_OK(client->DeleteSnapshot("monday"));
}

TEST_F(WriteHoldTest, AServerThatEndsLetsWritesGoOn) {
  const auto client = Connect("a");
  ASSERT_OK(client->HoldWrites(60));
  std::thread writer([&] { EXPECT_OK(Put(*volumes_[0], 1)); });
  std::this_thread::sleep_for(kWhile);
  servers_.clear();
  writer.join();
  EXPECT_TRUE(absl::IsUnavailable(client->TakeSnapshot("late").status()));
}

TEST_F(WriteHoldTest, AVolumeThatIsClosedIsNotHeld) {
  ASSERT_OK(volumes_[0]->Close());
  EXPECT_TRUE(absl::IsFailedPrecondition(volumes_[0]->HoldWrites().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Connect("a")->HoldWrites(1)));
}

}  // namespace write_hold_test
}  // namespace cbt::volume
