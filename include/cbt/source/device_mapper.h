// What the tools of the device mapper's thin and era targets print: `thin_delta` (with --verbose or
// not), `thin_dump`, `era_invalidate` and `era_dump`. Part of cbt::source; needs expat.
// Format: https://github.com/jthornber/thin-provisioning-tools, the manual pages thin_delta(8),
// thin_dump(8), era_invalidate(8), era_dump(8).
#ifndef CBT_SOURCE_DEVICE_MAPPER_H_
#define CBT_SOURCE_DEVICE_MAPPER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/import.h"

namespace cbt {

// `thin_delta --snap1 BASE --snap2 TARGET`: what is different, only in the base or only in the
// target has changed. `options.capacity` is needed, the XML does not hold a device's size.
// Errors: see cbt/import.h; an element that is not known is one: it could be a change.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadThinDelta(ByteStream& stream, const ImportOptions& options);

struct ThinDumpOptions {
  ImportOptions import = {};

  // dev_id of the thin device; not needed where the dump has one device.
  std::optional<uint64_t> device = {};
};

// `thin_dump`: what is mapped in one device. Shared parts (`def`, `ref`) are followed. With an
// external origin, unmapped blocks are read from there and not told here. `capacity` is needed.
// Errors: see cbt/import.h; NOT_FOUND for a device that is not there, DATA_LOSS when the mappings
//         are not as many as the dump says.
// Cost:   one pass; memory also for the maps of shared parts.
absl::StatusOr<ChangeMap> ReadThinDump(ByteStream& stream, const ThinDumpOptions& options);

struct EraOptions {
  ImportOptions import = {};

  // era_invalidate, which does not tell it: bytes a block.
  std::optional<uint64_t> block_size = {};

  // era_dump: blocks written in this era or a later one have changed, as with `era_invalidate
  // --written-since`.
  std::optional<uint64_t> since_era = {};
};

// `era_invalidate --written-since ERA`: the blocks that it lists. `block_size` and `capacity` are
// needed. Of a device in use it tells all that was written only with --metadata-snapshot; its
// output does not show whether it was given. Errors: see cbt/import.h. Cost: one pass.
absl::StatusOr<ChangeMap> ReadEraInvalidate(ByteStream& stream, const EraOptions& options);

// `era_dump`: the same from the whole metadata. `since_era` is needed; the capacity, where it is
// not given, is the number of blocks times their size.
// Errors: see cbt/import.h; FAILED_PRECONDITION for a dump without the writeset of its present era:
//         of a device in use it lacks what was written last, and one that was made with --logical
//         has only the first of the eras in which a block was written. Cost: one pass.
absl::StatusOr<ChangeMap> ReadEraDump(ByteStream& stream, const EraOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_DEVICE_MAPPER_H_
