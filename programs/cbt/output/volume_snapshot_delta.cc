#include "programs/cbt/output/volume_snapshot_delta.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_builder.h"
#include "cbt/transform.h"
#include "rpc/contract/delta_status.h"

namespace cbt::cli {
namespace {

// All but the status, which is the next value.
JsonBuilder BeginObject(const VolumeSnapshotDeltaSpec& spec) {
  JsonBuilder json;
  json.BeginObject().Field("apiVersion", "cbt.storage.k8s.io/v1alpha1");
  json.Field("kind", "VolumeSnapshotDelta");
  if (!spec.name.empty() || !spec.name_space.empty()) {
    json.Key("metadata").BeginObject();
    if (!spec.name.empty()) json.Field("name", spec.name);
    if (!spec.name_space.empty()) json.Field("namespace", spec.name_space);
    json.EndObject();
  }
  json.Key("spec").BeginObject();
  if (spec.base_snapshot.has_value()) json.Field("baseVolumeSnapshotName", *spec.base_snapshot);
  json.Field("targetVolumeSnapshotName", spec.target_snapshot).Field("mode", "block");
  json.Field("limit", spec.limit).Field("offset", spec.offset).EndObject();
  json.Key("status");
  return json;
}

// Adds blocks until the page is full or the cursor is complete. Whether there is more; `next`:
// where.
absl::StatusOr<bool> Fill(ExtentCursor& cursor, uint64_t block_size, uint64_t limit,
                          rpc::DeltaStatus& page, uint64_t& next) {
  ExtentBatch batch;
  uint64_t count = 0;
  for (;;) {
    absl::StatusOr<Step> step = cursor.Next(batch);
    if (!step.ok()) return step.status();
    for (const uint64_t offset : batch.offsets()) {
      if (count == limit) return true;
      page.Add(offset / block_size);
      next = offset / block_size + 1;
      ++count;
    }
    if (*step == Step::kComplete) return false;
  }
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
  rpc::DeltaStatus page(spec.limit, spec.offset, block_size);
  uint64_t next = spec.offset;
  absl::StatusOr<bool> more = false;
  if (spec.offset > BlockCount(capacity, block_size)) {
    more = absl::OutOfRangeError(absl::StrCat("offset ", spec.offset, " is past the last block"));
  } else if (const absl::Status sought =
                 (*blocks)->Seek(std::min(spec.offset * block_size, capacity));
             !sought.ok()) {
    more = sought;
  } else {
    more = Fill(**blocks, block_size, spec.limit, page, next);
  }
  if (failure != nullptr) *failure = more.status();
  JsonBuilder json = BeginObject(spec);
  more.ok() ? page.Finish(*more, next, json) : page.Fail(more.status(), json);
  return json.EndObject().Take();
}

std::string RenderFailedVolumeSnapshotDelta(const VolumeSnapshotDeltaSpec& spec,
                                            const absl::Status& error) {
  JsonBuilder json = BeginObject(spec);
  rpc::DeltaStatus(spec.limit, spec.offset, 0).Fail(error, json);
  return json.EndObject().Take();
}

}  // namespace cbt::cli
