// Reads and writes of an open volume.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/volume_core.h"

namespace cbt::volume {
namespace {

int ZeroRange(int file, Extent extent) noexcept {
  return Retry([&] {
           return ::fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE,
                              static_cast<off_t>(extent.offset), static_cast<off_t>(extent.length));
         }) == 0
             ? 0
             : errno;
}

absl::Status NotFast() {
  return absl::UnimplementedError("the range can't be zeroed without writing or copying data now");
}

}  // namespace

absl::Status TrackedVolume::Core::CheckUsable() const {
  if (!process_.IsOurs()) return CopiedByFork("the volume");
  if (!open_.load(std::memory_order_relaxed)) {
    if (reverting_.load()) return Reverting();
    return absl::FailedPreconditionError("the volume is closed");
  }
  return absl::OkStatus();
}

absl::Status TrackedVolume::Core::Reverting() {
  return absl::UnavailableError(
      "the volume is going back to a snapshot; if that has failed, restart its server");
}

absl::Status TrackedVolume::Core::CheckInside(Extent extent) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const uint64_t capacity = this->capacity();
  if (extent.offset > capacity || extent.length > capacity - extent.offset) {
    return absl::OutOfRangeError(absl::StrCat("extent (offset ", extent.offset, ", length ",
                                              extent.length, ") extends past the capacity of ",
                                              capacity, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status TrackedVolume::Core::Read(uint64_t offset, std::span<uint8_t> out) const {
  if (absl::Status status = CheckInside({offset, out.size()}); !status.ok()) return status;
  while (!out.empty()) {
    const ssize_t got = Retry([&] {
      return ::pread(data_.number(), out.data(), out.size(), static_cast<off_t>(offset));
    });
    if (got < 0) return FileError(directory_->Shown(kDataName), errno);
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(directory_->Shown(kDataName), ": is shorter than the volume's capacity"));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

template <typename Change>
absl::Status TrackedVolume::Core::Changing(Extent extent, Change change, ZeroCost cost) {
  // Before the gate, which another thread may have held when a forked child began.
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const GatePass pass(gate_);
  if (!pass.inside()) return absl::FailedPreconditionError("the volume is closed");
  if (absl::Status status = CheckInside(extent); !status.ok()) return status;
  if (extent.length == 0) return absl::OkStatus();
  // A snapshot that is being copied gets what the range holds first.
  if (cost == ZeroCost::kFastOnly && !copies_.empty()) return NotFast();
  absl::StatusOr<TrackedWrite> write = tracker_->Begin(extent);
  if (!write.ok()) {
    AskForRepair(write.status());
    return write.status();
  }
  if (!written_.load(std::memory_order_relaxed)) written_.store(true, std::memory_order_relaxed);
  int error = 0;
  for (const std::shared_ptr<SnapshotCopy>& copy : copies_) {
    if (error == 0) error = copy->Preserve(extent);
  }
  const bool preserved = error == 0;
  if (preserved) error = change();
  write->End();
  if (!preserved) AskForRepair(FileError(copying_files_->shown(), error));
  return error == 0 ? absl::OkStatus() : FileError(directory_->Shown(kDataName), error);
}

absl::Status TrackedVolume::Core::CheckNotLost() const {
  const int error = lost_.load();
  if (error == 0) return absl::OkStatus();
  return FileError(absl::StrCat(directory_->Shown(kDataName),
                                ": an earlier flush failed, so writes may be lost; reopen"),
                   error);
}

absl::Status TrackedVolume::Core::Sync() {
  if (absl::Status status = CheckNotLost(); !status.ok()) return status;
  if (Retry([&] { return ::fdatasync(data_.number()); }) != 0) {
    int none = 0;
    lost_.compare_exchange_strong(none, errno);
  }
  return CheckNotLost();
}

absl::Status TrackedVolume::Core::Write(uint64_t offset, std::span<const uint8_t> bytes,
                                        Durability durability) {
  // Not RWF_DSYNC, although it writes less: if it fails, it may have taken the only report of an
  // earlier write's error with it, and looks like a full disk.
  absl::Status status =
      Changing({offset, bytes.size()}, [&] { return WriteAt(data_.number(), bytes, offset); });
  if (status.ok() && durability == Durability::kFlushed) status = Sync();
  return status;
}

absl::Status TrackedVolume::Core::Zero(Extent extent, bool may_trim, Durability durability,
                                       ZeroCost cost) {
  bool slow = false;
  absl::Status status = Changing(
      extent,
      [&] {
        const int error =
            may_trim ? PunchHole(data_.number(), extent) : ZeroRange(data_.number(), extent);
        slow = CannotAllocate(error);
        if (!slow || cost == ZeroCost::kFastOnly) return error;
        return WriteZeros(data_.number(), extent);
      },
      cost);
  if (slow && cost == ZeroCost::kFastOnly) return NotFast();
  if (status.ok() && durability == Durability::kFlushed) status = Sync();
  return status;
}

absl::Status TrackedVolume::Core::Trim(Extent extent, Durability durability) {
  absl::Status status = Changing(extent, [&] {
    const int error = PunchHole(data_.number(), extent);
    return CannotAllocate(error) ? 0 : error;
  });
  if (status.ok() && durability == Durability::kFlushed) status = Sync();
  return status;
}

absl::Status TrackedVolume::Core::Flush() {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  return Sync();
}

absl::StatusOr<std::vector<VolumeExtent>> TrackedVolume::Core::Extents(Extent extent,
                                                                       size_t most) const {
  if (absl::Status status = CheckInside(extent); !status.ok()) return status;
  std::vector<VolumeExtent> parts;
  while (extent.length > 0 && parts.size() < most) {
    DataRun run;
    if (const int error = FindRun(data_.number(), extent, run); error != 0) {
      return FileError(directory_->Shown(kDataName), error);
    }
    parts.push_back({{extent.offset, run.end - extent.offset}, run.hole});
    extent = {run.end, extent.end() - run.end};
  }
  return parts;
}

}  // namespace cbt::volume
