// The bytes of a `.cbm` file, see docs/reference/format.md.
#ifndef CBT_MAP_MAP_FILE_H_
#define CBT_MAP_MAP_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/directory.h"
#include "base/file_io.h"
#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/cursor.h"
#include "map/portable_index.h"

namespace cbt {

// More bytes than any file has: the largest payload, and a header with 8 bytes for each 64 KiB of
// it and names. A reader refuses a larger file before it has read it.
inline constexpr uint64_t kMaxMapFileBytes = kMaxMapBytes + kMaxMapBytes / 64;

// The header of a file and its parts.
struct MapFileParts {
  ChangeMapHeader header;
  std::span<const uint8_t> digests;  // of the pieces of the payload, 8 bytes each
  std::span<const uint8_t> payload;
};

// Checks the header and splits `file` into its parts; does not check the payload. `name` is for
// messages. Errors as ReadChangeMap().
absl::StatusOr<MapFileParts> ParseMapFile(std::span<const uint8_t> file, std::string_view name);

// Encodes the header of a file with the given payload; sets the header's payload size and checksum.
// Errors: INVALID_ARGUMENT for the identity.
absl::StatusOr<std::vector<uint8_t>> EncodeMapHeader(ChangeMapHeader& header,
                                                     std::span<const uint8_t> payload);

// A file that is checked as it is read: each 64 KiB of the payload are compared with their digest
// when they are first needed. Any number of threads may read it.
struct LazyMap {
  ChangeMapHeader header;
  std::shared_ptr<const PortableIndex> index;
  std::shared_ptr<const MappedFile> storage;
};

// `storage` keeps `file` alive; null if the caller does.
absl::StatusOr<LazyMap> OpenLazily(std::span<const uint8_t> file,
                                   std::shared_ptr<const MappedFile> storage,
                                   std::string_view name);

// A cursor over a LazyMap with a file. Fails with ABORTED, before it completes, if the file was
// modified meanwhile.
std::unique_ptr<ExtentCursor> MakeLazyMapCursor(const LazyMap& map);

// As WriteChangeMap(), into `file` of `directory`.
absl::StatusOr<ChangeMapHeader> WriteMapIn(const Directory& directory, const std::string& file,
                                           const ChangeMap& map, bool sync);

// OK if `identity` can be stored in a file, otherwise INVALID_ARGUMENT.
absl::Status CheckIdentity(const ChangeMapIdentity& identity);

}  // namespace cbt

#endif  // CBT_MAP_MAP_FILE_H_
