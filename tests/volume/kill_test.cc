// Kills nbdkit again and again while threads write over NBD and another takes and deletes
// snapshots. The test knows which requests were acknowledged. After each kill:
//
// - every block holds its last acknowledged write, or one that was under way;
// - a snapshot that was acknowledged is there, and each of its blocks is between what was
//   acknowledged before the request and what was under way when the answer came;
// - a block that differs between two neighbouring snapshots, or between the newest and now, is in
//   the delta.
#include <gtest/gtest.h>
#include <libnbd.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "programs/volume/control.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/child_process.h"
#include "tests/support/figures.h"
#include "tests/support/files.h"
#include "tests/support/loop_mount.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"
#include "tests/volume/volume_model.h"

namespace cbt::volume {
namespace kill_test {

using test::Covers;
using test::ValueOf;
using test::VolumeModel;
using namespace units;

constexpr size_t kG = 4096;
constexpr size_t kBlocks = 512;
constexpr size_t kThreads = 3;

// The version of each block is the first number in it.
using Versions = std::array<uint64_t, kBlocks>;

Versions VersionsOf(const std::vector<uint8_t>& bytes) {
  Versions versions;
  for (size_t i = 0; i < kBlocks; ++i) std::memcpy(&versions[i], &bytes[i * kG], sizeof(uint64_t));
  return versions;
}

class KillTest : public testing::TestWithParam<bool> {
 protected:
  void Serve() {
    unlink((scratch_ / "nbd").c_str());  // which nbdkit does not replace
    server_ = std::make_unique<test::ChildProcess>(
        std::vector<std::string>{"nbdkit", "-f", "-t", "8", "-U", scratch_ / "nbd",
                                 CBT_NBDKIT_PLUGIN, "directory=" + directory_,
                                 absl::StrCat("control=", scratch_ / "control"), "checkpoint=1",
                                 GetParam() ? "copy=false" : "copy=true"},
        scratch_ / "log");
    for (int i = 0; i < 4000 && server_->running(); ++i) {
      // The control socket comes after the volume is open, the server's own may come before.
      const auto client = ControlClient::Connect(scratch_ / "control");
      if (client.ok() && access((scratch_ / "nbd").c_str(), F_OK) == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << test::ReadFile(scratch_ / "log");
  }

  // Writes to blocks of its own until the server is gone.
  void Write(size_t thread, uint64_t seed) {
    std::mt19937_64 random(seed);
    nbd_handle* const nbd = nbd_create();
    if (nbd_connect_unix(nbd, (scratch_ / "nbd").c_str()) == 0) {
      std::vector<uint8_t> block(kG);
      for (;;) {
        const size_t at = random() % (kBlocks / kThreads) * kThreads + thread;
        const uint64_t version = issued_[at] + 1;
        for (size_t i = 0; i < kG; i += 8) std::memcpy(&block[i], &version, sizeof(version));
        issued_[at] = version;
        const uint32_t flags = random() % 32 == 0 ? LIBNBD_CMD_FLAG_FUA : 0;
        if (nbd_pwrite(nbd, block.data(), kG, at * kG, flags) != 0) break;
        done_[at] = version;
        if (random() % 64 == 0 && nbd_flush(nbd, 0) != 0) break;
      }
    }
    nbd_close(nbd);
  }

  struct Bounds {
    Versions least;  // acknowledged before the snapshot was asked for
    Versions most;   // issued when it was acknowledged
  };
  static Versions Now(const std::array<std::atomic<uint64_t>, kBlocks>& versions) {
    Versions now;
    for (size_t i = 0; i < kBlocks; ++i) now[i] = versions[i];
    return now;
  }

  void Snapshot(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto client = ControlClient::Connect(scratch_ / "control");
    while (client.ok()) {
      const std::string id = absl::StrCat("s", ++number_);
      Bounds bounds;
      bounds.least = Now(done_);
      if (!(*client)->TakeSnapshot(id).ok()) return;
      bounds.most = Now(issued_);
      taken_[id] = bounds;
      if (taken_.size() > 3) {
        const auto victim =
            std::next(taken_.begin(), static_cast<std::ptrdiff_t>(random() % taken_.size()));
        deleting_ = victim->first;
        if (!(*client)->DeleteSnapshot(victim->first).ok()) return;
        taken_.erase(victim);
        deleting_.clear();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    }
  }

  void Check() {
    const auto volume = ValueOf(TrackedVolume::Open(directory_, {.always_copy = !GetParam()}));
    std::vector<uint8_t> bytes(kBlocks * kG);
    ASSERT_OK(volume->Read(0, bytes));
    const Versions versions = VersionsOf(bytes);
    for (size_t i = 0; i < kBlocks; ++i) {
      ASSERT_GE(versions[i], done_[i]) << "block " << i;
      ASSERT_LE(versions[i], issued_[i]) << "block " << i;
      issued_[i] = done_[i] = versions[i];
    }
    const std::string now = absl::StrCat("s", ++number_);
    ASSERT_OK(volume->TakeSnapshot(now));
    ASSERT_TRUE(volume->WaitForCopies(120));
    taken_[now] = {versions, versions};
    const auto infos = volume->snapshots();
    for (const auto& [id, bounds] : taken_) {
      const auto path = volume->SnapshotPath(id);
      if (id == deleting_ && absl::IsNotFound(path.status())) continue;
      ASSERT_OK(path);
      const Versions held = VersionsOf(test::ReadFile<std::vector<uint8_t>>(*path));
      for (size_t i = 0; i < kBlocks; ++i) {
        ASSERT_GE(held[i], bounds.least[i]) << id << " block " << i;
        ASSERT_LE(held[i], bounds.most[i]) << id << " block " << i;
      }
    }
    std::vector<uint8_t> base;
    for (size_t i = 0; i < infos.size(); ++i) {
      auto target =
          test::ReadFile<std::vector<uint8_t>>(ValueOf(volume->SnapshotPath(infos[i].id)));
      if (i > 0) {
        const auto delta =
            ValueOf(test::Drain(*ValueOf(volume->Delta(infos[i - 1].id, infos[i].id))));
        ASSERT_TRUE(Covers(delta, VolumeModel::Differing(base, target, kG), kG)) << infos[i].id;
        ++deltas_;
      }
      base = std::move(target);
    }
    // One whose request was not answered may be there.
    for (const SnapshotInfo& info : infos) {
      if (taken_.contains(info.id)) continue;
      ASSERT_OK(volume->DeleteSnapshot(info.id));
    }
    if (!deleting_.empty()) {
      ASSERT_OK(volume->DeleteSnapshot(deleting_));
      taken_.erase(deleting_);
      deleting_.clear();
    }
    ASSERT_OK(volume->Close());
  }

  void Kill(int rounds) {
    test::SeededRandom random(20);
    test::RequireOk(TrackedVolume::Create(directory_, kBlocks * kG, {.region_bytes = 32 * kG}));
    for (int round = 0; round < rounds; ++round) {
      SCOPED_TRACE(round);
      ASSERT_NO_FATAL_FAILURE(Serve());
      std::vector<std::thread> threads;
      for (size_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([this, t, seed = random()] { Write(t, seed); });
      }
      threads.emplace_back([this, seed = random()] { Snapshot(seed); });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));
      server_.reset();  // SIGKILL
      for (std::thread& thread : threads) thread.join();
      ASSERT_NO_FATAL_FAILURE(Check());
    }
    uint64_t writes = 0;
    for (const auto& version : done_) writes += version;
    EXPECT_GT(writes, static_cast<uint64_t>(rounds));
    EXPECT_GT(deltas_, rounds / 2);
    test::PrintFigure(GetParam() ? "volume_kills_cloned" : "volume_kills_copied", rounds);
    test::PrintFigure(GetParam() ? "volume_kill_writes_cloned" : "volume_kill_writes_copied",
                      writes);
  }

  test::TempDir scratch_;
  std::string directory_;
  std::unique_ptr<test::ChildProcess> server_;
  std::array<std::atomic<uint64_t>, kBlocks> issued_ = {};
  std::array<std::atomic<uint64_t>, kBlocks> done_ = {};
  std::map<std::string, Bounds> taken_;
  std::string deleting_;
  uint64_t number_ = 0;
  int deltas_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Snapshots, KillTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "cloned" : "copied"; });

TEST_P(KillTest, NothingAcknowledgedIsLostAndNoMark) {
  if (test::FindProgram("nbdkit").empty()) GTEST_SKIP() << "needs nbdkit";
  std::unique_ptr<test::LoopMount> mount;
  directory_ = scratch_ / "volume";
  if (GetParam()) {
    mount = std::make_unique<test::LoopMount>(
        test::LoopMount::Options{.mkfs = "mkfs.xfs -q -m reflink=1"});
    if (!mount->mounted()) GTEST_SKIP() << mount->why_not();
    directory_ = *mount / "volume";
  }
  Kill(static_cast<int>(12 * test::TestScale()));
}

}  // namespace kill_test
}  // namespace cbt::volume
