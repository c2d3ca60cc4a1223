// Change maps on disk: `.cbm` files, described byte by byte in docs/reference/format.md.
//
// A small header (versions, geometry, identity, checksums), then the portable roaring bytes. Every
// bit is under a checksum. Files are never changed in place: a new one takes the name of the old
// one by rename, so that a reader sees one or the other, whole, whatever happens meanwhile.
#ifndef CBT_CHANGE_MAP_FILE_H_
#define CBT_CHANGE_MAP_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"

namespace cbt {

// What a file says about its map.
struct ChangeMapHeader {
  VolumeGeometry geometry;
  ChangeMapIdentity identity;
  uint64_t cardinality = 0;    // blocks
  uint64_t payload_bytes = 0;  // of portable roaring
  uint64_t file_bytes = 0;     // in all
  uint64_t checksum = 0;       // of the header, and by it of everything
};

struct WriteMapOptions {
  // Waits until the file and its name are on the disk.
  bool sync = true;
};

// Writes `map` to `path`, in place of what may be there. After any failure or crash the old file is
// there, or none if there was none, or the new one.
// Errors: INVALID_ARGUMENT for an identity that is too long or no UTF-8, NOT_FOUND and
//         PERMISSION_DENIED for the folder, RESOURCE_EXHAUSTED when the disk is full, UNAVAILABLE
//         for what else it says.
// Returns: what was written.
absl::StatusOr<ChangeMapHeader> WriteChangeMap(const ChangeMap& map, const std::string& path,
                                               const WriteMapOptions& options = {});

// The bytes that WriteChangeMap() writes.
absl::StatusOr<std::vector<uint8_t>> EncodeChangeMap(const ChangeMap& map);

// Maps a file into memory and checks all of it. The map holds on to the memory and to no
// descriptor; as long as it or a copy lives, the file must not be written to where it lies, which
// nobody would see (WriteChangeMap() replaces files and may).
// Errors: NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE; INVALID_ARGUMENT for what is no such file;
//         DATA_LOSS with offset and reason for one that is damaged; UNIMPLEMENTED for one of a
//         newer major version or with a feature that this version doesn't know.
absl::StatusOr<ChangeMap> ReadChangeMap(const std::string& path);

// As above for the bytes of a file; `name` is for messages. The map has a copy of what it needs.
absl::StatusOr<ChangeMap> DecodeChangeMap(std::span<const uint8_t> bytes, const std::string& name);

// The header alone, checked by itself. Errors as above.
absl::StatusOr<ChangeMapHeader> ReadChangeMapHeader(const std::string& path);

// A cursor over the map in a file that checks what it reads when it gets there (64 KiB at a time),
// so that the first extents of a large map take no pass over all of it. Damage further on is
// DATA_LOSS from Next(); a file that was written to since it was opened is ABORTED, before the
// cursor is complete. It must not become shorter meanwhile.
absl::StatusOr<std::unique_ptr<ExtentCursor>> OpenChangeMapCursor(const std::string& path);

}  // namespace cbt

#endif  // CBT_CHANGE_MAP_FILE_H_
