// The manifest of a tracker: the file TRACKER in its directory, see docs/reference/format.md.
//
// Each change replaces it as a whole. It names every file that counts, by number and checksum. A
// named file that is missing or different is a loss; other files don't count. So nothing is
// inferred from the absence of a file.
#ifndef CBT_MAP_TRACKER_TRACKER_MANIFEST_H_
#define CBT_MAP_TRACKER_TRACKER_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/manifest_bytes.h"
#include "cbt/change_map.h"

namespace cbt {

// The stored state of an epoch: its map, and the region logs that were started at or after it.
struct TrackedEpoch {
  uint64_t number = 0;
  std::string base;
  bool exact = true;               // the map holds only written blocks
  ManifestFile map;                // none: empty
  std::vector<ManifestFile> logs;  // ascending
};

// Blocks that writes of a crashed process may still reach. They count in every epoch that is opened
// while epoch `until` exists.
struct LateWrites {
  ManifestFile map;
  uint64_t until = 0;
};

struct TrackerManifest {
  uint64_t id = 0;  // of the tracker, also in its logs
  VolumeGeometry geometry;
  std::string volume;
  uint64_t next_epoch = 0;
  uint64_t next_file = 1;
  // The tracker was closed with no write in flight, and nothing has been announced since.
  bool closed = false;
  // The newer of two epochs is not open yet, or is being dropped: it may lack writes, but the older
  // one has them. A crash discards it.
  bool opening = false;
  // The older of two epochs is closed: its map is complete, and the caller may not have stored it.
  bool older_closed = false;
  std::vector<TrackedEpoch> epochs;  // ascending numbers, one or two
  std::optional<LateWrites> late;

  // Null if no epoch has that number.
  TrackedEpoch* Find(uint64_t epoch) noexcept;
  // Drops the other epochs, and late writes that count only while one of those exists.
  void KeepOnly(uint64_t epoch) noexcept;
  // Drops the newer of two epochs; late writes then count while the older one exists.
  void DropNewer() noexcept;
};

std::vector<uint8_t> EncodeManifest(const TrackerManifest& manifest);

// Errors: INVALID_ARGUMENT for anything but a manifest, DATA_LOSS with the offset for a damaged
//         one, UNIMPLEMENTED for a newer version. `name` is for messages.
absl::StatusOr<TrackerManifest> DecodeTrackerManifest(std::span<const uint8_t> bytes,
                                                      std::string_view name);

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_TRACKER_MANIFEST_H_
