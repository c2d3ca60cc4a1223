#include "programs/cbt/commands/snapshot_data.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/source/qcow2.h"
#include "cbt/units.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

absl::StatusOr<SnapshotData> SnapshotData::Open(const std::string& name, const NbdArguments& nbd,
                                                std::stop_token stop) {
  if (absl::Status valid = CheckNbdOptions(nbd, name); !valid.ok()) return valid;
  SnapshotData data;
  if (IsNbdUri(name)) {
    absl::StatusOr<std::shared_ptr<NbdData>> opened = OpenNbd(name, nbd, std::move(stop));
    if (!opened.ok()) return opened.status();
    data.nbd_ = *std::move(opened);
    return data;
  }
  absl::StatusOr<std::shared_ptr<const Image>> image = Image::Open(name);
  if (!image.ok()) return image.status();
  data.image_ = *std::move(image);
  return data;
}

std::unique_ptr<CopyInput> SnapshotData::Input(NbdReads reads) const {
  return image_ != nullptr ? MakeCopyInput(image_) : MakeCopyInput(nbd_, reads);
}

absl::StatusOr<bool> SnapshotData::BeginsLikeQcow2() const {
  if (image_ == nullptr) return false;
  std::array<uint8_t, 4> first{};
  if (absl::Status read = image_->Read(0, first.size(), first.data()); !read.ok()) return read;
  return LooksLikeQcow2(first);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> SnapshotData::Allocated() const {
  if (image_ == nullptr) return nbd_->Allocated();
  struct stat info {};
  if (::fstat(image_->descriptor(), &info) != 0) return IoError(image_->label(), errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(image_->label(), ": a device does not say what is allocated"));
  }
  return MakeImageAllocationCursor(image_, {.block_size = kMiB});
}

absl::Status SnapshotData::CheckUnchanged() const {
  return image_ != nullptr ? image_->CheckUnchanged() : absl::OkStatus();
}

absl::StatusOr<std::optional<mode_t>> SnapshotData::Permissions() const {
  constexpr mode_t kPermissions = 0777;
  if (image_ == nullptr) return std::nullopt;
  struct stat info {};
  if (::fstat(image_->descriptor(), &info) != 0) return IoError(image_->label(), errno);
  return info.st_mode & kPermissions;
}

}  // namespace cbt::cli
