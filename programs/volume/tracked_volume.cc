#include "programs/volume/tracked_volume.h"

#include <new>
#include <utility>

#include "programs/volume/volume_core.h"

namespace cbt::volume {

absl::StatusOr<std::unique_ptr<TrackedVolume>> TrackedVolume::Open(const std::string& directory,
                                                                   const OpenOptions& options) {
  auto core = std::make_unique<Core>(directory, options);
  if (absl::Status status = core->Open(); !status.ok()) return status;
  return std::unique_ptr<TrackedVolume>(new TrackedVolume(std::move(core)));
}

TrackedVolume::TrackedVolume(std::unique_ptr<Core> core) : core_(std::move(core)) {}

TrackedVolume::~TrackedVolume() {
  try {
    Close().IgnoreError();
  } catch (const std::bad_alloc&) {
    // Ignored, like any other error of Close().
  }
}

uint64_t TrackedVolume::capacity() const noexcept { return core_->capacity(); }
uint64_t TrackedVolume::granularity() const noexcept { return core_->granularity(); }
const std::string& TrackedVolume::name() const noexcept { return core_->name(); }

absl::Status TrackedVolume::Read(uint64_t offset, std::span<uint8_t> out) const {
  return core_->Read(offset, out);
}
absl::Status TrackedVolume::Write(uint64_t offset, std::span<const uint8_t> bytes,
                                  Durability durability) {
  return core_->Write(offset, bytes, durability);
}
absl::Status TrackedVolume::Zero(Extent extent, bool may_trim, Durability durability,
                                 ZeroCost cost) {
  return core_->Zero(extent, may_trim, durability, cost);
}
absl::Status TrackedVolume::Trim(Extent extent, Durability durability) {
  return core_->Trim(extent, durability);
}
absl::Status TrackedVolume::Flush() { return core_->Flush(); }
absl::StatusOr<std::vector<VolumeExtent>> TrackedVolume::Extents(Extent extent, size_t most) const {
  return core_->Extents(extent, most);
}

absl::Status TrackedVolume::Resize(uint64_t capacity) { return core_->Resize(capacity); }
absl::StatusOr<SnapshotInfo> TrackedVolume::TakeSnapshot(const std::string& id) {
  return core_->TakeSnapshot(id);
}
absl::StatusOr<WriteHold> TrackedVolume::HoldWrites() { return core_->HoldWrites(); }
absl::Status TrackedVolume::DeleteSnapshot(const std::string& id,
                                           const std::optional<MarkLimits>& marks) {
  return core_->DeleteSnapshot(id, marks);
}
absl::Status TrackedVolume::Revert(const std::string& id) { return core_->Revert(id); }
absl::Status TrackedVolume::Attach() { return core_->Attach(); }
void TrackedVolume::Detach() noexcept { core_->Detach(); }
std::vector<SnapshotInfo> TrackedVolume::snapshots() const { return core_->snapshots(); }
std::vector<SnapshotMark> TrackedVolume::marks() const { return core_->marks(); }
absl::StatusOr<SnapshotInfo> TrackedVolume::FindSnapshot(std::string_view id) const {
  return core_->FindSnapshot(id);
}
absl::StatusOr<std::string> TrackedVolume::SnapshotPath(std::string_view id) const {
  return core_->SnapshotPath(id);
}
absl::StatusOr<std::unique_ptr<ExtentCursor>> TrackedVolume::Delta(std::string_view base,
                                                                   std::string_view target) const {
  return core_->Delta(base, target);
}
absl::StatusOr<std::unique_ptr<ExtentCursor>> TrackedVolume::Allocated(std::string_view id) const {
  return core_->Allocated(id);
}
VolumeStatus TrackedVolume::status() const { return core_->status(); }
bool TrackedVolume::WaitForCopies(double seconds) const { return core_->WaitForCopies(seconds); }
absl::Status TrackedVolume::Close() { return core_->Close(); }

}  // namespace cbt::volume
