// What belongs to a tracker: the file TRACKER in its folder, see docs/reference/format.md.
//
// Replaced as a whole by each change, it names every file that counts, by number and checksum. What
// it names and is not there, or is another file, is a loss; what it does not name does not count.
// So nothing is concluded from what is absent.
#ifndef CBT_MAP_TRACKER_TRACKER_MANIFEST_H_
#define CBT_MAP_TRACKER_TRACKER_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "map/folder/manifest_bytes.h"

namespace cbt {

// What is known of an epoch: what is in its map, and in the logs of regions that were begun then
// and later.
struct TrackedEpoch {
  uint64_t number = 0;
  std::string base;
  bool exact = true;               // the map holds written blocks alone
  ManifestFile map;                // none: nothing
  std::vector<ManifestFile> logs;  // ascending
};

// What writes may reach the storage of that were announced to a process that is gone. Counts in
// every epoch that is opened before epoch `until` goes.
struct LateWrites {
  ManifestFile map;
  uint64_t until = 0;
};

struct TrackerManifest {
  uint64_t id = 0;  // of the tracker, which its logs have too
  VolumeGeometry geometry;
  std::string volume;
  uint64_t next_epoch = 0;
  uint64_t next_file = 1;
  // The tracker was closed with no write in flight, and nothing has been announced since.
  bool closed = false;
  // The newer of two epochs is not open yet, or is being given up: it may lack writes, all of which
  // the older one has. After a crash it has never been.
  bool opening = false;
  std::vector<TrackedEpoch> epochs;  // ascending numbers, one or two
  std::optional<LateWrites> late;

  // Null when no epoch has that number.
  TrackedEpoch* Find(uint64_t epoch) noexcept;
  // Forgets the others, and late writes that counted as long as one of those was there.
  void KeepOnly(uint64_t epoch) noexcept;
  // Forgets the newer of two epochs; what is late counts as long as the older one is there.
  void DropNewer() noexcept;
};

std::vector<uint8_t> EncodeManifest(const TrackerManifest& manifest);

// Errors: INVALID_ARGUMENT for what is no manifest, DATA_LOSS with the offset for a damaged one,
//         UNIMPLEMENTED for a newer version. `name` is for messages.
absl::StatusOr<TrackerManifest> DecodeTrackerManifest(std::span<const uint8_t> bytes,
                                                      std::string_view name);

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_TRACKER_MANIFEST_H_
