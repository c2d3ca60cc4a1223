// Change maps on disk: `.cbm` files, described byte by byte in docs/reference/format.md.
//
// A small header (versions, geometry, identity, checksums), then the portable roaring bytes.
// Checksums cover every bit. Files are never changed in place: a new file replaces the old one by
// rename, so a reader always sees one of the two, complete.
#ifndef CBT_CHANGE_MAP_FILE_H_
#define CBT_CHANGE_MAP_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"

namespace cbt {

// The header of a file.
struct ChangeMapHeader {
  VolumeGeometry geometry;
  ChangeMapIdentity identity;
  uint64_t cardinality = 0;    // blocks
  uint64_t payload_bytes = 0;  // of portable roaring
  uint64_t file_bytes = 0;     // of the whole file
  uint64_t checksum = 0;       // of the header, which holds the checksums of everything else
};

struct WriteMapOptions {
  // Waits until the file and its name are on disk.
  bool sync = true;
};

// Writes `map` to `path`, replacing an existing file. After any failure or crash, `path` is either
// as it was before or the complete new file.
// Errors: INVALID_ARGUMENT for an identity that is too long or not UTF-8, NOT_FOUND and
//         PERMISSION_DENIED for the directory, FAILED_PRECONDITION if `path` is a device, a pipe or a
//         socket, RESOURCE_EXHAUSTED if the disk is full, UNAVAILABLE for other disk errors.
// Returns: the header that was written.
absl::StatusOr<ChangeMapHeader> WriteChangeMap(const ChangeMap& map, const std::string& path,
                                               const WriteMapOptions& options = {});

// The bytes that WriteChangeMap() writes.
absl::StatusOr<std::vector<uint8_t>> EncodeChangeMap(const ChangeMap& map);

// Maps a file into memory and checks all of it. `label` replaces the path in messages, which a
// server may pass on to its clients. The map keeps the memory mapped and no descriptor open. While
// it or a copy exists, the file must not be modified in place, which would go undetected
// (WriteChangeMap() replaces the file and is safe).
// Errors: NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE; INVALID_ARGUMENT if it is not a change map;
//         DATA_LOSS with offset and reason if it is damaged; UNIMPLEMENTED if it has a newer major
//         version or an unknown feature.
absl::StatusOr<ChangeMap> ReadChangeMap(const std::string& path, std::string_view label = {});

// As above, for the bytes of a file; `name` is used in messages. The map copies what it needs.
absl::StatusOr<ChangeMap> DecodeChangeMap(std::span<const uint8_t> bytes, const std::string& name);

// Reads and checks the header only. Label and errors as above.
absl::StatusOr<ChangeMapHeader> ReadChangeMapHeader(const std::string& path,
                                                    std::string_view label = {});

// A cursor over the map in a file that checks data as it reads it (64 KiB at a time), so that the
// first extents of a large map need no pass over all of it. Next() fails with DATA_LOSS where the
// file is damaged, and with ABORTED, before the cursor completes, if the file was modified since it
// was opened. The file must not be truncated while the cursor reads it. Label and errors as above.
absl::StatusOr<std::unique_ptr<ExtentCursor>> OpenChangeMapCursor(const std::string& path,
                                                                  std::string_view label = {});

}  // namespace cbt

#endif  // CBT_CHANGE_MAP_FILE_H_
