#include "programs/cbt/output/volume_snapshot_delta.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/transform.h"

namespace cbt::cli {
namespace {

struct Page {
  VolumeSnapshotDeltaState state = VolumeSnapshotDeltaState::kCompleted;
  std::string error = {};
  uint64_t next = 0;
  std::string blocks = {};
};

std::string Render(const VolumeSnapshotDeltaSpec& spec, const Page& page) {
  std::string json = R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1","kind":"VolumeSnapshotDelta")";
  if (!spec.name.empty() || !spec.name_space.empty()) {
    json += R"(,"metadata":{)";
    if (!spec.name.empty()) absl::StrAppend(&json, R"("name":)", JsonString(spec.name));
    if (!spec.name_space.empty()) {
      absl::StrAppend(&json, spec.name.empty() ? "" : ",", R"("namespace":)",
                      JsonString(spec.name_space));
    }
    json += "}";
  }
  json += R"(,"spec":{)";
  if (spec.base_snapshot.has_value()) {
    absl::StrAppend(&json, R"("baseVolumeSnapshotName":)", JsonString(*spec.base_snapshot), ",");
  }
  absl::StrAppend(&json, R"("targetVolumeSnapshotName":)", JsonString(spec.target_snapshot),
                  R"(,"mode":"block","limit":)", spec.limit, R"(,"offset":)", spec.offset,
                  R"(},"status":{"state":)", static_cast<int>(page.state));
  if (!page.error.empty()) absl::StrAppend(&json, R"(,"error":)", JsonString(page.error));
  absl::StrAppend(&json, R"(,"limit":)", spec.limit, R"(,"offset":)", spec.offset,
                  R"(,"continue":)", page.next, R"(,"changedBlockDeltas":[)", page.blocks, "]}}");
  return json;
}

// Adds blocks until the page is full or the cursor is complete.
absl::Status Fill(ExtentCursor& cursor, uint64_t block_size, uint64_t limit, Page& page) {
  ExtentBatch batch;
  uint64_t count = 0;
  for (;;) {
    absl::StatusOr<Step> step = cursor.Next(batch);
    if (!step.ok()) return step.status();
    for (const uint64_t offset : batch.offsets()) {
      if (count == limit) {
        page.state = VolumeSnapshotDeltaState::kContinue;
        return absl::OkStatus();
      }
      absl::StrAppend(&page.blocks, count == 0 ? "" : ",", R"({"offset":)", offset / block_size,
                      R"(,"blockSizeBytes":)", block_size, "}");
      page.next = offset / block_size + 1;
      ++count;
    }
    if (*step == Step::kComplete) return absl::OkStatus();
  }
}

Page Failed(const VolumeSnapshotDeltaSpec& spec, const absl::Status& error) {
  return {.state = VolumeSnapshotDeltaState::kFailed,
          .error = absl::StrCat(absl::StatusCodeToString(error.code()), ": ", error.message()),
          .next = spec.offset,
          .blocks = {}};
}

}  // namespace

absl::StatusOr<std::string> RenderVolumeSnapshotDelta(const VolumeSnapshotDeltaSpec& spec,
                                                      std::unique_ptr<ExtentCursor> cursor,
                                                      uint64_t block_size, absl::Status* failure) {
  if (spec.target_snapshot.empty()) {
    return absl::InvalidArgumentError("volume snapshot delta: the target is missing");
  }
  if (spec.limit == 0) return absl::InvalidArgumentError("volume snapshot delta: the limit is 0");
  absl::StatusOr<std::unique_ptr<ExtentCursor>> blocks = ToBlocks(std::move(cursor), block_size);
  if (!blocks.ok()) return blocks.status();
  const uint64_t capacity = (*blocks)->capacity();
  Page page;
  page.next = spec.offset;
  absl::Status status;
  if (spec.offset > BlockCount(capacity, block_size)) {
    status = absl::OutOfRangeError(absl::StrCat("offset ", spec.offset, " is past the last block"));
  } else {
    status = (*blocks)->Seek(std::min(spec.offset * block_size, capacity));
  }
  if (status.ok()) status = Fill(**blocks, block_size, spec.limit, page);
  if (failure != nullptr) *failure = status;
  return Render(spec, status.ok() ? page : Failed(spec, status));
}

std::string RenderFailedVolumeSnapshotDelta(const VolumeSnapshotDeltaSpec& spec,
                                            const absl::Status& error) {
  return Render(spec, Failed(spec, error));
}

}  // namespace cbt::cli
