// Making and deleting volumes. The manifest comes last and goes first: a directory without one is
// no volume, whatever else is in it.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/change_chain.h"
#include "cbt/change_tracker.h"
#include "map/chain/chain_access.h"
#include "map/tracker/tracker_access.h"
#include "programs/volume/data_stamp.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/tracked_volume.h"
#include "programs/volume/volume_directory.h"
#include "programs/volume/volume_manifest.h"

namespace cbt::volume {
namespace {

constexpr char kLockName[] = "LOCK";  // of DirectoryClaim

absl::StatusOr<std::string> RandomName() {
  std::array<char, 16> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return FileError("getrandom", errno);
  }
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

bool IsOfVolume(std::string_view name) {
  return name == kManifestName || name == kDataName || name == kChainName ||
         name == kSnapshotsName || name == kCopyingName || name == kMarksName ||
         name == kClosedName || name == kRevertName || name == kLockName ||
         name == kUnfinishedName || name.starts_with(kTrackerPrefix) ||
         (name.starts_with(".") && name.ends_with(kPartialExtension));
}

absl::Status CheckOnlyVolume(const Directory& directory) {
  absl::StatusOr<std::vector<std::string>> names = directory.List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (IsOfVolume(name)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        directory.Shown(name), ": is no part of a volume, so the directory stays as it is"));
  }
  return absl::OkStatus();
}

// Without a manifest, the parts of a volume may be all that is left of one that was in use.
absl::Status CheckUnfinished(const Directory& directory) {
  absl::StatusOr<std::vector<std::string>> names = directory.List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (name == kUnfinishedName) return absl::OkStatus();
  }
  for (const std::string& name : *names) {
    if (name == kLockName || name.ends_with(kPartialExtension)) continue;
    return absl::DataLossError(absl::StrCat(
        directory.Shown(name), ": is part of a volume whose ", kManifestName,
        " is missing, so the directory stays as it is; save what it holds and remove it"));
  }
  return absl::OkStatus();
}

absl::Status MarkUnfinished(const Directory& directory) {
  return directory.Write(kUnfinishedName, {}, /*sync=*/true);
}

// Removes everything but the lock, the manifest first and the mark last.
absl::Status Clear(const Directory& directory) {
  if (!directory.Remove(kManifestName)) return FileError(directory.Shown(kManifestName), errno);
  if (absl::Status status = directory.Sync(); !status.ok()) return status;
  absl::StatusOr<std::vector<std::string>> names = directory.List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (name == kLockName || name == kUnfinishedName) continue;
    if (absl::Status status = directory.RemoveTree(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RemoveMark(const Directory& directory) {
  // What it stands for is gone for good before it.
  if (absl::Status status = directory.Sync(); !status.ok()) return status;
  if (directory.Remove(kUnfinishedName)) return absl::OkStatus();
  return FileError(directory.Shown(kUnfinishedName), errno);
}

absl::Status MakeData(const Directory& directory, uint64_t capacity, const std::string& image) {
  const OwnedDescriptor data(Retry([&] {
    return ::openat(directory.descriptor(), kDataName, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                    S_IRUSR | S_IWUSR | S_IRGRP);
  }));
  if (!data.has_value()) return FileError(directory.Shown(kDataName), errno);
  if (!image.empty()) {
    const OwnedDescriptor from(OpenFile(image, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!from.has_value()) return FileError(image, errno);
    const off_t size = ::lseek(from.number(), 0, SEEK_END);
    if (size < 0) return FileError(image, errno);
    if (static_cast<uint64_t>(size) > capacity) {
      return absl::OutOfRangeError(
          absl::StrCat(image, ": has ", size, " bytes, more than the volume's ", capacity));
    }
    int error = CloneFile(from.number(), data.number());
    if (CannotClone(error)) {
      error = CopyRange(from.number(), data.number(), {0, static_cast<uint64_t>(size)},
                        CopyTarget::kZeros);
    }
    if (error != 0) return FileError(directory.Shown(kDataName), error);
  }
  if (::ftruncate(data.number(), static_cast<off_t>(capacity)) != 0 ||
      ::fsync(data.number()) != 0) {
    return FileError(directory.Shown(kDataName), errno);
  }
  return absl::OkStatus();
}

absl::Status MakeTracker(const Directory& directory, const VolumeManifest& manifest) {
  const absl::StatusOr<Directory> made =
      directory.MakeDirectory(TrackerName(manifest.tracker), false);
  if (!made.ok()) return made.status();
  TrackerOptions options;
  options.geometry = {.capacity = manifest.capacity, .granularity = manifest.granularity};
  options.volume = manifest.name;
  options.base = kOriginName;
  options.region_bytes = manifest.region_bytes;
  absl::StatusOr<std::unique_ptr<ChangeTracker>> tracker = TrackerAccess::Create(options, *made);
  if (!tracker.ok()) return tracker.status();
  return (*tracker)->Close();
}

absl::Status Make(const Directory& directory, const VolumeManifest& manifest,
                  const std::string& image) {
  if (absl::Status status = MakeData(directory, manifest.capacity, image); !status.ok()) {
    return status;
  }
  for (const char* const name : {kSnapshotsName, kCopyingName, kMarksName}) {
    const absl::StatusOr<Directory> made = directory.MakeDirectory(name, /*sync=*/false);
    if (!made.ok()) return made.status();
  }
  if (absl::Status status = MakeTracker(directory, manifest); !status.ok()) return status;
  const absl::StatusOr<Directory> chain_directory =
      directory.MakeDirectory(kChainName, /*sync=*/false);
  if (!chain_directory.ok()) return chain_directory.status();
  // The tracker has checked the names.
  const absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      CreateChainIn(*chain_directory, manifest.name, manifest.granularity,
                    {.id = kOriginName, .capacity = manifest.capacity});
  if (!chain.ok()) return chain.status();
  if (absl::Status status = directory.Sync(); !status.ok()) return status;
  return WriteVolumeManifest(directory, manifest);
}

}  // namespace

absl::Status TrackedVolume::Create(const std::string& directory, uint64_t capacity,
                                   const CreateOptions& options) {
  if (capacity == 0 || capacity > kMaxCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("a volume has 1 to ", kMaxCapacity, " bytes, not ", capacity));
  }
  if (!IsPowerOfTwo(options.granularity) || options.granularity < 512 ||
      options.granularity > 64 * kMiB) {
    return absl::InvalidArgumentError(absl::StrCat(
        "granularity ", options.granularity, " is not a power of two from 512 bytes to 64 MiB"));
  }
  VolumeManifest manifest{.name = options.name,
                          .capacity = capacity,
                          .granularity = options.granularity,
                          .region_bytes = options.region_bytes,
                          .tracker = 1};
  if (manifest.name.empty()) {
    absl::StatusOr<std::string> name = RandomName();
    if (!name.ok()) return name.status();
    manifest.name = *std::move(name);
  }
  if (absl::Status status = MakeDirectory(directory, /*sync=*/true); !status.ok()) return status;
  const absl::StatusOr<Directory> opened = Directory::Open(directory);
  if (!opened.ok()) return opened.status();
  const absl::StatusOr<std::unique_ptr<DirectoryClaim>> claim = DirectoryClaim::Take(*opened);
  if (!claim.ok()) return claim.status();
  const absl::StatusOr<bool> made = opened->Has(kManifestName);
  if (!made.ok()) return made.status();
  if (*made) return absl::AlreadyExistsError(absl::StrCat(directory, ": there is a volume"));
  if (absl::Status status = CheckOnlyVolume(*opened); !status.ok()) return status;
  if (absl::Status status = CheckUnfinished(*opened); !status.ok()) return status;
  if (absl::Status status = MarkUnfinished(*opened); !status.ok()) return status;
  if (absl::Status status = Clear(*opened); !status.ok()) return status;
  absl::Status status = Make(*opened, manifest, options.image);
  // The part that was made takes space, and the failure may be a lack of it.
  if (!status.ok() && !Clear(*opened).ok()) return status;
  const absl::Status unmarked = RemoveMark(*opened);
  return status.ok() ? unmarked : status;
}

absl::Status TrackedVolume::Remove(const std::string& directory) {
  {
    const absl::StatusOr<Directory> opened = Directory::Open(directory);
    if (!opened.ok()) return opened.status();
    const absl::StatusOr<std::unique_ptr<DirectoryClaim>> claim = DirectoryClaim::Take(*opened);
    if (!claim.ok()) return claim.status();
    if (absl::Status status = CheckOnlyVolume(*opened); !status.ok()) return status;
    // A full disk must not keep a volume from being removed.
    MarkUnfinished(*opened).IgnoreError();
    if (absl::Status status = Clear(*opened); !status.ok()) return status;
    if (absl::Status status = RemoveMark(*opened); !status.ok()) return status;
    if (!opened->Remove(kLockName)) return FileError(opened->Shown(kLockName), errno);
  }
  std::error_code error;
  std::filesystem::remove(directory, error);
  return error ? FileError(directory, error.value()) : absl::OkStatus();
}

}  // namespace cbt::volume
