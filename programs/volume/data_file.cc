#include "programs/volume/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/volume_directory.h"

namespace cbt::volume {

absl::Status DataFile::Open(const Directory& volume) {
  absl::StatusOr<OwnedDescriptor> file = volume.OpenFile(kDataName, O_RDWR | O_NOFOLLOW);
  if (!file.ok()) return file.status();
  volume_ = volume;
  file_ = *std::move(file);
  return absl::OkStatus();
}

absl::Status DataFile::ErrorOf(int error) const {
  return FileError(volume_->Shown(kDataName), error);
}

absl::Status DataFile::CutTo(uint64_t capacity) const {
  struct stat stat;
  if (::fstat(number(), &stat) != 0) return ErrorOf(errno);
  const auto size = static_cast<uint64_t>(stat.st_size);
  if (!S_ISREG(stat.st_mode) || size < capacity) {
    return absl::DataLossError(absl::StrCat(volume_->Shown(kDataName), ": has ", stat.st_size,
                                            " bytes, the volume ", capacity));
  }
  return size > capacity ? Resize(capacity) : absl::OkStatus();
}

absl::Status DataFile::Resize(uint64_t bytes) const {
  return ::ftruncate(number(), static_cast<off_t>(bytes)) == 0 ? absl::OkStatus() : ErrorOf(errno);
}

absl::Status DataFile::Read(uint64_t offset, std::span<uint8_t> out) const {
  while (!out.empty()) {
    const ssize_t got = Retry(
        [&] { return ::pread(number(), out.data(), out.size(), static_cast<off_t>(offset)); });
    if (got < 0) return ErrorOf(errno);
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(volume_->Shown(kDataName), ": is shorter than the volume's capacity"));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<VolumeExtent>> DataFile::Extents(Extent extent, size_t most) const {
  std::vector<VolumeExtent> parts;
  while (extent.length > 0 && parts.size() < most) {
    DataRun run;
    if (const int error = FindRun(number(), extent, run); error != 0) return ErrorOf(error);
    parts.push_back({{extent.offset, run.end - extent.offset}, run.hole});
    extent = {run.end, extent.end() - run.end};
  }
  return parts;
}

int DataFile::Write(uint64_t offset, std::span<const uint8_t> bytes) const noexcept {
  return WriteAt(number(), bytes, offset);
}

int DataFile::Zero(Extent extent) const noexcept {
  const int done = Retry([&] {
    return ::fallocate(number(), FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE,
                       static_cast<off_t>(extent.offset), static_cast<off_t>(extent.length));
  });
  return done == 0 ? 0 : errno;
}

int DataFile::Punch(Extent extent) const noexcept { return PunchHole(number(), extent); }

int DataFile::WriteZeros(Extent extent) const noexcept {
  return volume::WriteZeros(number(), extent);
}

absl::Status DataFile::CheckNotLost() const {
  const int error = lost_.load();
  if (error == 0) return absl::OkStatus();
  return FileError(absl::StrCat(volume_->Shown(kDataName),
                                ": an earlier flush failed, so writes may be lost; reopen"),
                   error);
}

absl::Status DataFile::Sync() {
  if (absl::Status status = CheckNotLost(); !status.ok()) return status;
  if (Retry([&] { return ::fdatasync(number()); }) != 0) {
    int none = 0;
    lost_.compare_exchange_strong(none, errno);
  }
  return CheckNotLost();
}

}  // namespace cbt::volume
