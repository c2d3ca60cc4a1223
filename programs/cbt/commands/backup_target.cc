#include "programs/cbt/commands/backup_target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "cbt/source/copy_ranges.h"
#include "programs/backup/restore_plan.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

// How many blobs show whether a target holds what is said.
constexpr size_t kSamples = 32;

// What is written in place.
struct InPlace {
  std::unique_ptr<CopyOutput> output;
  uint64_t size = 0;
  bool fixed = true;  // its size, which may be more than the volume's
  OwnedDescriptor descriptor = {};
};

absl::Status CheckSize(const std::string& name, uint64_t has, uint64_t needs) {
  if (has >= needs) return absl::OkStatus();
  return UsageError(name, absl::StrCat("has ", has, " bytes, the volume ", needs));
}

absl::StatusOr<InPlace> OpenExport(const std::string& uri, uint64_t size,
                                   const NbdArguments& arguments, const std::stop_token& stop) {
  absl::StatusOr<std::shared_ptr<NbdData>> data = OpenNbd(uri, arguments, stop);
  if (!data.ok()) return data.status();
  InPlace place{.output = nullptr, .size = (*data)->size()};
  if (absl::Status fits = CheckSize(uri, place.size, size); !fits.ok()) return fits;
  if (absl::Status writable = (*data)->CheckWritable(); !writable.ok()) return writable;
  place.output = MakeCopyOutput(*std::move(data));
  return place;
}

absl::StatusOr<InPlace> OpenInPlace(const RestoreRequest& request, uint64_t size,
                                    const std::stop_token& stop) {
  const std::string& path = request.to;
  if (IsNbdUri(path)) return OpenExport(path, size, request.nbd, stop);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return OpenError(path, errno);
  InPlace place{.output = nullptr, .fixed = S_ISBLK(info.st_mode)};
  if (!place.fixed && !S_ISREG(info.st_mode)) {
    return UsageError(path, "is no file and no block device");
  }
  // A device that is mounted, or in use otherwise, is refused.
  place.descriptor =
      OwnedDescriptor(OpenFile(path, O_RDWR | O_CLOEXEC | (place.fixed ? O_EXCL : 0)));
  if (!place.descriptor.has_value()) {
    if (errno == EBUSY) return UsageError(path, "is in use, mounted perhaps");
    return OpenError(path, errno);
  }
  const off_t end = ::lseek(place.descriptor.number(), 0, SEEK_END);
  if (end < 0) return IoError(path, errno);
  place.size = static_cast<uint64_t>(end);
  if (place.fixed) {
    if (absl::Status fits = CheckSize(path, place.size, size); !fits.ok()) return fits;
  }
  place.output = MakeCopyOutput(place.descriptor.number(), path);
  return place;
}

// The blobs that the target lacks, by what is said about it.
absl::StatusOr<std::vector<uint32_t>> PlanRestore(repository::Repository& repository,
                                                  const backup::VolumeSnapshot& snapshot,
                                                  const backup::VolumeContent& content,
                                                  const RestoreRequest& request,
                                                  const InPlace& place) {
  std::optional<backup::VolumeSnapshot> other;
  std::optional<backup::VolumeContent> other_content;
  if (!request.since.empty()) {
    absl::StatusOr<backup::VolumeSnapshot> found =
        backup::FindVolumeSnapshot(repository, snapshot.volume, request.since);
    if (!found.ok()) return found.status();
    absl::StatusOr<backup::VolumeContent> loaded = backup::LoadContent(repository, *found);
    if (!loaded.ok()) return loaded.status();
    other = *std::move(found);
    other_content = *std::move(loaded);
  }
  const backup::VolumeSnapshot& base = other.has_value() ? *other : snapshot;
  backup::HeldContent held{.snapshot = other_content.has_value() ? *other_content : content,
                           .target_bytes = place.size};
  std::unique_ptr<ExtentCursor> written;
  if (request.ranges.given()) {
    if (!base.handle.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("snapshot ", base.snapshot.id.Short(),
                       " has no handle, so nothing can say what was written since"));
    }
    const absl::StatusOr<Ranges> ranges = OpenRanges(
        request.ranges, place.size,
        [] { return absl::UnimplementedError("a target is written, not backed up"); },
        "backup restore");
    if (!ranges.ok()) return ranges.status();
    absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = ranges->source->Delta(*base.handle);
    if (!cursor.ok()) return cursor.status();
    written = *std::move(cursor);
    const uint64_t capacity = written->capacity();
    if (capacity > place.size || (!place.fixed && capacity != place.size)) {
      return absl::InvalidArgumentError(absl::StrCat(request.to, ": has ", place.size,
                                                     " bytes, but the changes are of a volume of ",
                                                     capacity, ": they are about something else"));
    }
    held.written = written.get();
  }
  return backup::FindMissing(content, held);
}

absl::StatusOr<backup::TransferProgress> RestoreInPlace(repository::Repository& repository,
                                                        const backup::VolumeSnapshot& snapshot,
                                                        const backup::VolumeContent& content,
                                                        const RestoreRequest& request,
                                                        backup::TransferOptions options) {
  const absl::StatusOr<InPlace> place = OpenInPlace(request, content.size, options.stop);
  if (!place.ok()) return place.status();
  if (!request.since.empty() || request.ranges.given()) {
    absl::StatusOr<std::vector<uint32_t>> missing =
        PlanRestore(repository, snapshot, content, request, *place);
    if (!missing.ok()) return missing.status();
    const absl::Status checked = backup::CheckHeld(content, *missing, *place->output, kSamples);
    if (!checked.ok()) {
      return absl::Status(checked.code(), absl::StrCat(request.to, ": ", checked.message(),
                                                       "; nothing was written"));
    }
    options.only = *std::move(missing);
  }
  if (absl::Status locked = repository.ConfirmLock(); !locked.ok()) return locked;
  if (!place->fixed && Retry([&] {
                         return ::ftruncate(place->descriptor.number(),
                                            static_cast<off_t>(content.size));
                       }) != 0) {
    return IoError(request.to, errno);
  }
  return backup::Restore(repository, content, *place->output,
                         request.onto ? backup::Target::kKept : backup::Target::kUnknown, options);
}

}  // namespace

absl::StatusOr<backup::TransferProgress> RestoreTo(repository::Repository& repository,
                                                   const backup::VolumeSnapshot& snapshot,
                                                   const backup::VolumeContent& content,
                                                   const RestoreRequest& request,
                                                   backup::TransferOptions options) {
  const std::string& path = request.to;
  if (absl::Status valid = CheckNbdOptions(request.nbd, path); !valid.ok()) return valid;
  struct stat info {};
  const bool device = ::stat(path.c_str(), &info) == 0 && S_ISBLK(info.st_mode);
  if (device || request.onto || IsNbdUri(path)) {
    return RestoreInPlace(repository, snapshot, content, request, std::move(options));
  }
  if (IsStdout(path)) {
    return UsageError(path, "blobs come in any order; `restic dump` writes to a pipe");
  }
  const absl::StatusOr<OutputPlace> place = FindOutputPlace(path, {});
  if (!place.ok()) return place.status();
  const absl::StatusOr<std::unique_ptr<TempFile>> file = TempFile::Create(place->path);
  if (!file.ok()) return file.status();
  const int descriptor = (*file)->descriptor();
  if (Retry([&] { return ::ftruncate(descriptor, static_cast<off_t>(content.size)); }) != 0) {
    return IoError(path, errno);
  }
  const std::unique_ptr<CopyOutput> output = MakeCopyOutput(descriptor, path);
  const absl::StatusOr<backup::TransferProgress> done =
      backup::Restore(repository, content, *output, backup::Target::kZero, options);
  if (!done.ok()) return done;
  if (absl::Status locked = repository.ConfirmLock(); !locked.ok()) return locked;
  constexpr mode_t kOwner = 0600;
  const mode_t mode = place->present.has_value() ? place->present->st_mode & 0777 : kOwner;
  if (absl::Status committed = (*file)->Commit(mode); !committed.ok()) return committed;
  return done;
}

}  // namespace cbt::cli
