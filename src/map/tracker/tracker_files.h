// The directory of a tracker, see docs/reference/format.md:
//
//   TRACKER         the manifest, see tracker_manifest.h
//   changes-N.cbm   the changes of an epoch up to some moment
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
#include "base/directory.h"
#include "cbt/change_map.h"
#include "map/tracker/region_log.h"
#include "map/tracker/tracker_manifest.h"

namespace cbt {

// Not thread-safe, except for directory().
class TrackerFiles {
 public:
  // Claims the directory for this process, and creates it if missing.
  // Errors: UNAVAILABLE if another process has it; file errors.
  static absl::StatusOr<std::unique_ptr<TrackerFiles>> Open(const std::string& path);
  static absl::StatusOr<std::unique_ptr<TrackerFiles>> Open(const Directory& directory);

  // True if the directory has any file of a tracker, also of an earlier format. A single empty
  // first log doesn't count: an interrupted Create() leaves it.
  absl::StatusOr<bool> IsUsed() const;

  // An epoch as stored in the directory: the union of its map and logs.
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
  // Reads everything that the manifest names, completely or not at all, and sets manifest().
  // Removes files that it does not name.
  // Errors: NOT_FOUND if there is no tracker, FAILED_PRECONDITION for another volume or geometry,
  //         DATA_LOSS if a file is missing or damaged, or has the first format, which can't prove
  //         completeness.
  absl::StatusOr<Contents> Read(const std::string& volume, const VolumeGeometry& geometry);

  // The manifest on disk, or to be there once Commit() has succeeded.
  const TrackerManifest& manifest() const noexcept { return manifest_; }

  // Each uses up a file number, even on failure. The file counts only after a Commit() that names
  // it.
  absl::StatusOr<std::shared_ptr<RegionLog>> CreateLog(RegionLogHeader header);
  absl::StatusOr<ManifestFile> WriteMap(const ChangeMap& map);

  // Replaces the manifest with `next`, syncs it to disk, and removes files that it does not name.
  // Sets next.next_file.
  // Errors: file errors, including RESOURCE_EXHAUSTED for memory. The manifest is then unchanged,
  //         or, if IsUnsure(), possibly `next`; all files that either names stay. Exceptions change
  //         nothing.
  absl::Status Commit(TrackerManifest next);

  // Removes what a failed Commit() may have left, if there was no tracker before.
  void RemoveAll() noexcept;

  // True if a Commit() failed and its manifest may or may not be on disk.
  bool IsUnsure() const noexcept { return unsure_; }

  // OK while no other process can have claimed the directory, see DirectoryClaim::Check().
  absl::Status CheckClaim() const { return claim_->Check(); }

 private:
  explicit TrackerFiles(std::unique_ptr<DirectoryClaim> claim);
  const Directory& directory() const noexcept { return claim_->directory(); }
  absl::StatusOr<ChangeMap> ReadMap(const ManifestFile& file) const;
  absl::StatusOr<Epoch> ReadEpoch(const TrackedEpoch& files) const;
  absl::Status Lost(const std::string& file, const absl::Status& why) const;
  void RemoveAllBut(const std::set<std::string>& named) noexcept;

  const std::unique_ptr<DirectoryClaim> claim_;
  const absl::Status no_memory_;  // created while memory was available
  TrackerManifest manifest_;
  bool unsure_ = false;
  uint64_t next_file_ = 1;
  std::set<std::string> present_;  // names of maps and logs that may exist
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_TRACKER_FILES_H_
