// The folder of a tracker, see docs/reference/format.md:
//
//   TRACKER         the manifest, see tracker_manifest.h
//   changes-N.cbm   what had changed in an epoch at some moment
//   regions-N.log   the regions that may have been written to since, see region_log.h
#ifndef CBT_MAP_TRACKER_TRACKER_FILES_H_
#define CBT_MAP_TRACKER_TRACKER_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "map/folder/folder.h"
#include "map/tracker/region_log.h"
#include "map/tracker/tracker_manifest.h"

namespace cbt {

// For one thread at a time but for folder().
class TrackerFiles {
 public:
  // Takes the directory for this process alone, and makes it if it is not there.
  // Errors: UNAVAILABLE when another process has it; those of files.
  static absl::StatusOr<std::unique_ptr<TrackerFiles>> Open(const std::string& directory);

  // True when there is any file of a tracker, also of an earlier format; but for the first log
  // alone, with nothing in it, which a Create() leaves that was cut off.
  absl::StatusOr<bool> IsUsed() const;

  // What the folder says of one epoch: map and logs united.
  struct Epoch {
    TrackedEpoch files;
    ChangeMap map;
    bool exact = true;
  };
  struct Contents {
    bool closed = false;
    std::vector<Epoch> epochs;      // oldest first, one or two
    std::optional<ChangeMap> late;  // see LateWrites
  };
  // Reads everything that the manifest names, whole or an error; manifest() is what was read then.
  // Removes what it does not name.
  // Errors: NOT_FOUND when there is no tracker, FAILED_PRECONDITION for another volume or geometry,
  //         DATA_LOSS when something is missing or damaged, or of a format that proves nothing.
  absl::StatusOr<Contents> Read(const std::string& volume, const VolumeGeometry& geometry);

  // What stands on the disk, or will when Commit() has succeeded.
  const TrackerManifest& manifest() const noexcept { return manifest_; }

  // Each takes a number of a file, also when it fails, and counts only after a Commit() that names
  // it.
  absl::StatusOr<std::shared_ptr<RegionLog>> CreateLog(RegionLogHeader header);
  absl::StatusOr<ManifestFile> WriteMap(const ChangeMap& map);

  // Replaces the manifest by `next`, brings it to the disk, and removes files that it does not
  // name. The number of the next file is filled in.
  // Errors: those of files, RESOURCE_EXHAUSTED for memory among them. The manifest is then what it
  //         was, or, where IsUnsure(), perhaps `next`; all files that either names stay. What is
  //         thrown changes nothing.
  absl::Status Commit(TrackerManifest next);

  // Removes what a Commit() that failed may have left, where there was no tracker before.
  void RemoveAll() noexcept;

  // A Commit() has failed of which it is not known whether its manifest is on the disk.
  bool IsUnsure() const noexcept { return unsure_; }

  // OK as long as no other process can have the folder, see FolderClaim::Check().
  absl::Status CheckClaim() const { return claim_->Check(); }

 private:
  explicit TrackerFiles(std::unique_ptr<FolderClaim> claim);
  const Folder& folder() const noexcept { return claim_->folder(); }
  absl::StatusOr<ChangeMap> ReadMap(const ManifestFile& file) const;
  absl::StatusOr<Epoch> ReadEpoch(const TrackedEpoch& files) const;
  absl::Status Lost(const std::string& file, const absl::Status& why) const;
  void RemoveAllBut(const std::set<std::string>& named) noexcept;

  const std::unique_ptr<FolderClaim> claim_;
  const absl::Status no_memory_;  // made while there was some
  TrackerManifest manifest_;
  bool unsure_ = false;
  uint64_t next_file_ = 1;
  std::set<std::string> present_;  // names of maps and logs that may be there
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_TRACKER_FILES_H_
