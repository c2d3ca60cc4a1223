// OpenSnapshotMetadata() from the API server's objects to the last tuple: a real kube-apiserver,
// the sidecar and a plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "cbt/extent.h"
#include "cbt/kube/snapshot_metadata.h"
#include "tests/kube/support/control_plane.h"
#include "tests/kube/support/sidecar_world.h"
#include "tests/rpc/support/providers.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace snapshot_metadata_live_test {

using reference::Ranges;
using std::chrono::milliseconds;

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kSlowCapacity = 50 * kBlock;

// "large": more than is ever on the way; "slow": a tuple every 40 ms; others: one tuple, another
// for a delta.
absl::StatusOr<MetadataSource> Answer(const FunctionProvider::Call& call) {
  if (call.target == "large") return Extents(AlternatingCursor(400'000 * kBlock, kBlock));
  if (call.target == "slow") {
    return Extents(std::make_unique<ScriptedCursor>(
        kSlowCapacity, kBlock, std::make_shared<CursorTrace>(),
        [](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          std::this_thread::sleep_for(milliseconds(40));
          const uint64_t next = (position + 2 * kBlock - 1) / (2 * kBlock) * (2 * kBlock);
          if (next >= kSlowCapacity) return kSlowCapacity;
          batch.push_back({next, kBlock});
          return next + kBlock;
        }));
  }
  if (call.target != "target") return absl::NotFoundError("no such snapshot");
  if (!call.base.has_value()) return Extents(CursorOver({{0, 2 * kBlock}}, 16 * kBlock));
  if (*call.base != "base") return absl::NotFoundError("no such base");
  return Extents(CursorOver({{kBlock, kBlock}}, 16 * kBlock));
}

class SnapshotMetadataLiveTest : public testing::Test {
 protected:
  void SetUp() override {
    CBT_NEED_SNAPSHOT_CRDS();
    // For all tests of this program.
    static FunctionProvider provider(Answer);
    static SidecarWorld shared(ControlPlane::Shared(), provider, milliseconds(300));
    static const bool filled = [] {
      shared.AddClient("client");
      int64_t created = 0;
      for (const char* name : {"base", "target", "slow", "large", "lost"}) {
        shared.AddSnapshot(name, name, ++created);
      }
      return true;
    }();
    ASSERT_TRUE(filled);
    world_ = &shared;
    client_ = world_->ClientOf("client");
    request_.name_space = world_->name_space();
    request_.snapshot = "target";
  }

  absl::StatusOr<Ranges> Listed() {
    absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> cursor =
        kube::OpenSnapshotMetadata(client_, request_);
    if (!cursor.ok()) return cursor.status();
    absl::StatusOr<Ranges> ranges = Drain(**cursor);
    if (ranges.ok()) {
      EXPECT_EQ((*cursor)->completeness(), rpc::Completeness::kProven);
    }
    resumes_ = (*cursor)->resumes();
    return ranges;
  }

  SidecarWorld* world_ = nullptr;
  std::shared_ptr<kube::Client> client_;
  kube::SnapshotMetadataRequest request_;
  int resumes_ = 0;
};

TEST_F(SnapshotMetadataLiveTest, AllocatedAndADelta) {
  EXPECT_EQ(ValueOf(Listed()), (Ranges{{0, 2 * kBlock}}));
  request_.base = "base";
  EXPECT_EQ(ValueOf(Listed()), (Ranges{{kBlock, kBlock}}));
  request_.base.reset();
  request_.base_handle = "base";
  EXPECT_EQ(ValueOf(Listed()), (Ranges{{kBlock, kBlock}}));
}

TEST_F(SnapshotMetadataLiveTest, ErrorsOfEachStep) {
  request_.snapshot = "never";
  EXPECT_TRUE(absl::IsNotFound(Listed().status())) << Listed().status();
  // The plugin does not know what Kubernetes knows.
  request_.snapshot = "lost";
  EXPECT_TRUE(absl::IsNotFound(Listed().status())) << Listed().status();
  request_.snapshot = "target";
  request_.base_handle = "unknown";
  EXPECT_TRUE(absl::IsNotFound(Listed().status())) << Listed().status();
  request_.base_handle.reset();
  request_.name_space = "default";
  EXPECT_TRUE(absl::IsPermissionDenied(Listed().status())) << Listed().status();
  request_.name_space = world_->name_space();
  request_.service_account = {.name_space = world_->name_space(), .name = "sidecar"};
  EXPECT_TRUE(absl::IsPermissionDenied(Listed().status())) << Listed().status();
}

TEST_F(SnapshotMetadataLiveTest, TheSidecarsLimitForAStreamIsPassed) {
  request_.snapshot = "slow";
  // A message for each tuple: a second in all, and 300 ms for each stream.
  request_.stream.max_results = 1;
  Ranges expected;
  for (uint64_t i = 0; i < 25; ++i) expected.emplace_back(2 * i * kBlock, kBlock);
  EXPECT_EQ(ValueOf(Listed()), expected);
  EXPECT_GE(resumes_, 2);
}

TEST_F(SnapshotMetadataLiveTest, ResumesWhenTheSidecarComesBack) {
  request_.snapshot = "large";
  ASSERT_OK_AND_ASSIGN(const auto cursor, kube::OpenSnapshotMetadata(client_, request_));
  // The stream needs no one else to keep the client for further tokens.
  client_.reset();
  ExtentBatch batch(100);
  ASSERT_OK(cursor->Next(batch));
  Ranges ranges;
  for (size_t i = 0; i < batch.size(); ++i) ranges.emplace_back(batch[i].offset, batch[i].length);
  world_->RestartSidecar();
  ASSERT_OK_AND_ASSIGN(const Ranges rest, Drain(*cursor));
  ranges.insert(ranges.end(), rest.begin(), rest.end());
  ASSERT_EQ(ranges.size(), 200'000U);
  for (uint64_t i = 0; i < ranges.size(); ++i) {
    ASSERT_EQ(ranges[i], std::make_pair(2 * i * kBlock, kBlock));
  }
  EXPECT_GE(cursor->resumes(), 1);
}

}  // namespace snapshot_metadata_live_test
}  // namespace cbt::test
