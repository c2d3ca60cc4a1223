#include "programs/cbt/output/volume_snapshot_delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace volume_snapshot_delta_test {

using cli::RenderFailedVolumeSnapshotDelta;
using cli::RenderVolumeSnapshotDelta;
using cli::VolumeSnapshotDeltaSpec;
using testing::HasSubstr;

TEST(VolumeSnapshotDelta, PagesByBlockIndex) {
  const VolumeSnapshotDeltaSpec spec{.name = "d",
                                     .name_space = "n",
                                     .base_snapshot = "a",
                                     .target_snapshot = "b\"",
                                     .limit = 2,
                                     .offset = 0};
  const auto open = [] { return CursorOver({{0, 1}, {5000, 10}, {20000, 10}}, 30000); };
  EXPECT_EQ(ValueOf(RenderVolumeSnapshotDelta(spec, open(), 4096)),
            R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1","kind":"VolumeSnapshotDelta",)"
            R"("metadata":{"name":"d","namespace":"n"},)"
            R"("spec":{"baseVolumeSnapshotName":"a","targetVolumeSnapshotName":"b\"",)"
            R"("mode":"block","limit":2,"offset":0},)"
            R"("status":{"state":1,"limit":2,"offset":0,"continue":2,"changedBlockDeltas":[)"
            R"({"offset":0,"blockSizeBytes":4096},{"offset":1,"blockSizeBytes":4096}]}})");
  VolumeSnapshotDeltaSpec next = spec;
  next.offset = 2;
  ASSERT_OK_AND_ASSIGN(const std::string last, RenderVolumeSnapshotDelta(next, open(), 4096));
  EXPECT_THAT(last, HasSubstr(R"("state":0)"));
  EXPECT_THAT(last, HasSubstr(R"([{"offset":4,"blockSizeBytes":4096}])"));
  next.offset = 9;
  EXPECT_THAT(ValueOf(RenderVolumeSnapshotDelta(next, open(), 4096)), HasSubstr(R"("state":2)"));
  next.limit = 0;
  EXPECT_FALSE(RenderVolumeSnapshotDelta(next, open(), 4096).ok());
  EXPECT_FALSE(RenderVolumeSnapshotDelta(spec, open(), 0).ok());
  EXPECT_THAT(RenderFailedVolumeSnapshotDelta(spec, absl::NotFoundError("gone")),
              HasSubstr(R"("state":2,"error":"NOT_FOUND: gone")"));
}

// Fails in Seek() (`at` 0) or in its n-th batch.
class BrokenCursor final : public ExtentCursor {
 public:
  explicit BrokenCursor(int at) : ExtentCursor({.capacity = kMiB, .granularity = 4096}), at_(at) {}

 private:
  absl::Status DoSeek(uint64_t) override {
    return at_ == 0 ? absl::DataLossError("torn") : absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (++batches_ == at_) return absl::DataLossError("torn");
    batch.push_back({covered(), 4096});
    return covered() + 8192;
  }

  const int at_;
  int batches_ = 0;
};

TEST(VolumeSnapshotDelta, TellsTheCallerWhyAPageFailed) {
  const VolumeSnapshotDeltaSpec spec{.target_snapshot = "t", .limit = 3};
  for (const int at : {0, 1, 3}) {
    absl::Status failure;
    ASSERT_OK_AND_ASSIGN(
        const std::string page,
        RenderVolumeSnapshotDelta(spec, std::make_unique<BrokenCursor>(at), 4096, &failure));
    EXPECT_EQ(failure, absl::DataLossError("torn"));
    EXPECT_THAT(page, HasSubstr(R"("state":2,"error":"DATA_LOSS: torn")"));
    EXPECT_THAT(page, HasSubstr(R"("changedBlockDeltas":[])"));
  }
  absl::Status failure = absl::UnknownError("of before");
  EXPECT_THAT(
      ValueOf(RenderVolumeSnapshotDelta(spec, std::make_unique<BrokenCursor>(9), 4096, &failure)),
      HasSubstr(R"("state":1)"));
  EXPECT_EQ(failure, absl::OkStatus());
}
}  // namespace volume_snapshot_delta_test
}  // namespace cbt::test
