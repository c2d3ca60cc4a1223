// How a closed volume's data is recognised: CLOSED in its directory, docs/reference/format.md.
#ifndef CBT_PROGRAMS_VOLUME_DATA_STAMP_H_
#define CBT_PROGRAMS_VOLUME_DATA_STAMP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"
#include "base/manifest_bytes.h"

namespace cbt::volume {

inline constexpr char kClosedName[] = "CLOSED";

// Differs once anybody has written to the file, replaced it, or changed its owner or mode.
struct DataStamp {
  uint64_t inode = 0;
  uint64_t size = 0;        // bytes
  int64_t modified_ns = 0;  // nanoseconds since 1970
  int64_t changed_ns = 0;   // of the inode: can't be set back

  friend bool operator==(const DataStamp&, const DataStamp&) = default;
};

// The stamp of the file that is open as `data`.
absl::StatusOr<DataStamp> ReadStamp(const Directory& directory, int data);

// Syncs the data, and returns a stamp that any later change of the data makes a different one. For
// that it may wait for the next tick of the file system's clock, a second at the most.
absl::StatusOr<DataStamp> SettleStamp(const Directory& directory, int data);

// As fields of a manifest; a reader that ends too early is unsound.
void EncodeStamp(ManifestWriter& writer, const DataStamp& stamp);
DataStamp DecodeStamp(ManifestReader& reader);

// Records the settled stamp. Durable when it returns.
absl::Status WriteClosed(const Directory& directory, int data);

// NOT_FOUND if the volume was not closed; DATA_LOSS, UNIMPLEMENTED for a newer version, file
// errors.
absl::StatusOr<DataStamp> ReadClosed(const Directory& directory);

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_DATA_STAMP_H_
