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
#include "base/file_io.h"
#include "cbt/change_map_file.h"
#include "cbt/cursor.h"
#include "map/folder/folder.h"
#include "map/portable_index.h"

namespace cbt {

// The header of a file and where the payload lies.
struct MapFileParts {
  ChangeMapHeader header;
  std::span<const uint8_t> digests;  // of the pieces of the payload, 8 bytes each
  std::span<const uint8_t> payload;
};

// Takes `file` apart after a check of the header; the payload has not been looked at. `name` is for
// messages. Errors as ReadChangeMap().
absl::StatusOr<MapFileParts> ParseMapFile(std::span<const uint8_t> file, std::string_view name);

// The header of a file with the given contents. Fills in the header's payload size and checksum.
// Errors: INVALID_ARGUMENT for the identity.
absl::StatusOr<std::vector<uint8_t>> EncodeMapHeader(ChangeMapHeader& header,
                                                     std::span<const uint8_t> payload);

// A file that is read piece by piece: every 64 KiB of the payload are compared with their digest
// when something in them is first needed. Any number of threads may read one.
struct LazyMap {
  ChangeMapHeader header;
  std::shared_ptr<const PortableIndex> index;
  std::shared_ptr<const MappedFile> storage;
};

// `storage` keeps `file` alive; null when somebody else does.
absl::StatusOr<LazyMap> OpenLazily(std::span<const uint8_t> file,
                                   std::shared_ptr<const MappedFile> storage,
                                   std::string_view name);

// A cursor over one that has a file; it fails with ABORTED in the end when that was written to
// meanwhile.
std::unique_ptr<ExtentCursor> MakeLazyMapCursor(const LazyMap& map);

// As WriteChangeMap(), into `file` of `folder`.
absl::StatusOr<ChangeMapHeader> WriteMapIn(const Folder& folder, const std::string& file,
                                           const ChangeMap& map, bool sync);

// OK when `identity` can stand in a file; INVALID_ARGUMENT.
absl::Status CheckIdentity(const ChangeMapIdentity& identity);

}  // namespace cbt

#endif  // CBT_MAP_MAP_FILE_H_
