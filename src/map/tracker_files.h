// The directory of a tracker: for each open epoch the exact map of some moment and logs of the
// regions that were written to since, see docs/format.md.
//
//   epoch-E-G.cbm   what had changed in epoch E when generation G of its log began; absent for 0.
//                   `epoch-E-G-rough.cbm` when regions stand for blocks in it.
//   epoch-E-G.log   the log of generation G
//   epoch-E.gone    epoch E is being removed and does not count
//
// What is known of an epoch is its map of the highest G and every log from that G on. A map without
// such a log was written in peace.
#ifndef CBT_MAP_TRACKER_FILES_H_
#define CBT_MAP_TRACKER_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "map/file_io.h"
#include "map/region_log.h"

namespace cbt {

// What a directory says about one epoch.
struct EpochFiles {
  uint64_t epoch = 0;
  uint64_t generation = 0;  // the highest one
  std::string base;
  ChangeMap map;
  bool exact = true;
};

class TrackerFiles {
 public:
  // Takes the directory for this process alone, and makes it if it is not there.
  // Errors: UNAVAILABLE when another process has it; those of files.
  static absl::StatusOr<std::unique_ptr<TrackerFiles>> Open(const std::string& directory);
  ~TrackerFiles();
  TrackerFiles(const TrackerFiles&) = delete;
  TrackerFiles& operator=(const TrackerFiles&) = delete;

  // The epochs that are there, oldest first, at most two: whole or an error. `next`: a number that
  // no epoch has had.
  // Errors: NOT_FOUND when there is none, FAILED_PRECONDITION for another volume or geometry,
  //         DATA_LOSS when something is missing or damaged.
  absl::StatusOr<std::vector<EpochFiles>> Read(const std::string& volume,
                                               const VolumeGeometry& geometry,
                                               uint64_t& next) const;

  // True when there is a file of any epoch.
  absl::StatusOr<bool> HasEpochs() const;

  absl::StatusOr<std::shared_ptr<RegionLog>> CreateLog(const RegionLogHeader& header) const;

  // Writes the map at the beginning of `generation`, then removes what it makes superfluous.
  absl::Status WriteMap(const ChangeMap& map, uint64_t epoch, uint64_t generation,
                        bool exact) const;

  // The epoch is gone when this has returned OK, even where some of its files could not be removed
  // yet. Its number must not be used again.
  absl::Status Forget(uint64_t epoch) const;

 private:
  struct Name;

  TrackerFiles(std::string directory, std::unique_ptr<FolderLock> lock);
  absl::StatusOr<std::vector<Name>> List() const;
  std::string Path(const std::string& name) const;
  absl::Status RemoveAll(const std::vector<std::string>& names) const;
  absl::StatusOr<EpochFiles> ReadEpoch(uint64_t epoch, const std::vector<Name>& names,
                                       const std::string& volume,
                                       const VolumeGeometry& geometry) const;

  const std::string directory_;
  const std::unique_ptr<FolderLock> lock_;
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_FILES_H_
