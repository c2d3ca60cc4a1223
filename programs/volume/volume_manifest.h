// MANIFEST of a volume's directory: docs/reference/format.md.
#ifndef CBT_PROGRAMS_VOLUME_VOLUME_MANIFEST_H_
#define CBT_PROGRAMS_VOLUME_VOLUME_MANIFEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"

namespace cbt::volume {

inline constexpr char kManifestName[] = "MANIFEST";

struct VolumeManifest {
  std::string name = {};
  uint64_t capacity = 0;      // bytes
  uint64_t granularity = 0;   // bytes
  uint64_t region_bytes = 0;  // of the tracker
  uint64_t tracker = 0;       // the number of the tracker's directory; never reused
};

// Errors: NOT_FOUND without a volume, DATA_LOSS, UNIMPLEMENTED for a newer version, file errors.
absl::StatusOr<VolumeManifest> ReadVolumeManifest(const Directory& directory);

// Replaces it as a whole. Durable when it returns; after an error it may be old or new.
absl::Status WriteVolumeManifest(const Directory& directory, const VolumeManifest& manifest);

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_VOLUME_MANIFEST_H_
