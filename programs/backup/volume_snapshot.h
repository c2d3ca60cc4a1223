// A volume's snapshots in a repository: one file at the top of a tree, and tags.
#ifndef CBT_PROGRAMS_BACKUP_VOLUME_SNAPSHOT_H_
#define CBT_PROGRAMS_BACKUP_VOLUME_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "repository/repository.h"

namespace cbt::backup {

// The smallest and the largest blobs into which volumes are cut, and the most of them.
inline constexpr uint64_t kMinBlobBytes = uint64_t{1} << 20;
inline constexpr uint64_t kMaxBlobBytes = uint64_t{8} << 20;
inline constexpr size_t kMaxVolumeBlobs = size_t{4} << 20;

struct VolumeSnapshot {
  repository::Snapshot snapshot = {};
  std::string volume = {};
  bool ours = false;                        // made by `cbtctl backup create`
  std::optional<std::string> handle = {};   // of the storage's snapshot
  std::optional<uint64_t> capacity = {};    // bytes
  std::optional<uint64_t> blob_bytes = {};  // how the volume was cut
  std::string tier = {};                    // how it was read; empty if unknown
};

// OK for the name of a file that restic writes as it is: UTF-8 of up to 200 bytes without slashes,
// backslashes, quotes and control characters. Errors: INVALID_ARGUMENT.
absl::Status CheckVolumeName(std::string_view name);

// The tags of a new snapshot.
std::vector<std::string> TagsOf(const VolumeSnapshot& snapshot);

// Of a snapshot of one file at the top, such as `restic backup --stdin` makes too; else nothing.
std::optional<VolumeSnapshot> AsVolumeSnapshot(const repository::Snapshot& snapshot);

// Those of `volume`, or of all volumes if that is empty, the oldest first.
absl::StatusOr<std::vector<VolumeSnapshot>> FindVolumeSnapshots(repository::Repository& repository,
                                                                std::string_view volume);

// The one that `which` names: the beginning of its id (four digits or more), its handle, or
// "latest", also if empty. Errors: NOT_FOUND; INVALID_ARGUMENT if several begin so.
absl::StatusOr<VolumeSnapshot> FindVolumeSnapshot(repository::Repository& repository,
                                                  const std::string& volume,
                                                  const std::string& which);

struct VolumeContent {
  uint64_t size = 0;
  std::vector<repository::Id> blobs = {};
  std::vector<uint64_t> offsets = {};  // where each begins, and `size` at the end

  uint64_t LengthOf(size_t blob) const { return offsets[blob + 1] - offsets[blob]; }
  // Whether every blob but the last has exactly `bytes`.
  bool IsCutAt(uint64_t bytes) const;
};

// Errors: those of blobs; NOT_FOUND if the tree has no such file, or the index lacks a blob;
//         DATA_LOSS if the blobs are not as long as the file.
absl::StatusOr<VolumeContent> LoadContent(repository::Repository& repository,
                                          const VolumeSnapshot& snapshot);

}  // namespace cbt::backup

#endif  // CBT_PROGRAMS_BACKUP_VOLUME_SNAPSHOT_H_
