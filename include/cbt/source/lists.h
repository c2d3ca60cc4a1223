// Lists of changed or allocated ranges that storage systems and their tools print. Part of
// cbt::source.
#ifndef CBT_SOURCE_LISTS_H_
#define CBT_SOURCE_LISTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/import.h"

namespace cbt {

// ---
// Answers of the Amazon EBS direct APIs, ListSnapshotBlocks and ListChangedBlocks, as JSON. Part of
// cbt::source; needs RapidJSON. Signing and asking is the caller's. Format:
// https://docs.aws.amazon.com/ebs/latest/APIReference/API_ListChangedBlocks.html

// Reads pages behind each other (or an array of them), in the order in which they came. Every page
// but the last one has a NextToken, and the last has none: else a page is missing. Pages have no
// numbers: that one is missing from the middle can't be noticed here, the caller makes sure of
// each. Empty pages are no end. A changed block without a second token is gone in the target, which
// is a change. The volume's size is VolumeSize, in GiB, of the pages, or else `options.capacity`.
// Errors: see cbt/source/import.h. Cost: one pass; memory also for the block numbers of a page that
// tells
//         its BlockSize behind them, RESOURCE_EXHAUSTED over 2^22 ranges.
absl::StatusOr<ChangeMap> ReadEbsPages(ByteStream& stream, const ImportOptions& options = {});

// ---
// Answers of VMware's VirtualMachine.QueryChangedDiskAreas, DiskChangeInfo objects as JSON. Part of
// cbt::source; needs RapidJSON. Asking is the caller's.

// Reads answers behind each other (or an array of them). Each covers [startOffset, startOffset +
// length); together they must cover [0, options.capacity), which is needed, in ascending order
// without a gap: a query that was not repeated to the disk's end is DATA_LOSS. What was asked with
// changeId "*" tells allocation, anything else a delta; the answer does not say which.
// Errors: see cbt/source/import.h. Cost: one pass.
absl::StatusOr<ChangeMap> ReadVmwareAreas(ByteStream& stream, const ImportOptions& options);

// ---
// What `qemu-img map --output=json` prints. Part of cbt::source; needs RapidJSON.
// Format: https://www.qemu.org/docs/master/tools/qemu-img.html#cmdoption-qemu-img-commands-arg-map

// kAllocated: what does not read as zeros for sure. kDelta: what the topmost image of the chain has
// by itself, data, zeros and discarded ranges alike, so what an overlay changed of its backing
// file. The entries must cover the volume without a gap. Its size is the end of the last one unless
// `options.capacity` says where in its last 512 bytes the volume ends.
// Errors: see cbt/source/import.h; INVALID_ARGUMENT for a delta whose topmost image has entries
// that
//         are neither data nor zeros, as maps over an NBD dirty bitmap (x-dirty-bitmap) do. Cost:
//         one pass.
absl::StatusOr<ChangeMap> ReadQemuMap(ByteStream& stream, const ImportOptions& options = {});

// ---
// Ceph RBD: what `rbd export-diff`, `rbd export --export-format 2` and `rbd diff --format json`
// write. Part of cbt::source; the last one needs RapidJSON. For a live image see
// cbt/source/rbd_live.h. Format: https://docs.ceph.com/en/latest/dev/rbd-diff/

struct RbdDiffOptions {
  ImportOptions import = {};

  // Of an export with several diffs (`rbd export --export-format 2`): the names of the snapshots
  // between which to tell. An empty target is the image itself; kDelta needs a base. Of a stream
  // with one diff they must be, where given, what the stream says.
  std::string base = {};
  std::string target = {};
};

// The ranges of a diff stream, version 1 or 2, or of the diffs of an export. Data is passed over
// and never held. A diff without a base snapshot tells allocation, one with a base a delta; the
// names go into the map's identity. The volume's size is the one in the stream.
// Errors: see cbt/source/import.h; NOT_FOUND for snapshots that the stream does not have, DATA_LOSS
// for an
//         export in which two have one name, RESOURCE_EXHAUSTED for more than 16 MiB of names.
// Cost:   one pass over the records.
absl::StatusOr<ChangeMap> ReadRbdDiff(ByteStream& stream, const RbdDiffOptions& options = {});

// The ranges of `rbd diff --format json`, those that do not exist any more too. Whether it was
// asked from a snapshot or not the list does not say; `options.capacity` is needed.
// Errors: see cbt/source/import.h. Cost: one pass.
absl::StatusOr<ChangeMap> ReadRbdDiffJson(ByteStream& stream, const ImportOptions& options);

// ---
// What the tools of the device mapper's thin and era targets print: `thin_delta` (with --verbose or
// not), `thin_dump`, `era_invalidate` and `era_dump`. Part of cbt::source; needs expat.
// Format: https://github.com/jthornber/thin-provisioning-tools, the manual pages thin_delta(8),
// thin_dump(8), era_invalidate(8), era_dump(8).

// `thin_delta --snap1 BASE --snap2 TARGET`: what is different, only in the base or only in the
// target has changed. `options.capacity` is needed, the XML does not hold a device's size.
// Errors: see cbt/source/import.h; an element that is not known is one: it could be a change.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadThinDelta(ByteStream& stream, const ImportOptions& options);

struct ThinDumpOptions {
  ImportOptions import = {};

  // dev_id of the thin device; not needed where the dump has one device.
  std::optional<uint64_t> device = {};
};

// `thin_dump`: what is mapped in one device. Shared parts (`def`, `ref`) are followed. With an
// external origin, unmapped blocks are read from there and not told here. `capacity` is needed.
// Errors: see cbt/source/import.h; NOT_FOUND for a device that is not there, DATA_LOSS when the
// mappings
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
// output does not show whether it was given. Errors: see cbt/source/import.h. Cost: one pass.
absl::StatusOr<ChangeMap> ReadEraInvalidate(ByteStream& stream, const EraOptions& options);

// `era_dump`: the same from the whole metadata. `since_era` is needed; the capacity, where it is
// not given, is the number of blocks times their size.
// Errors: see cbt/source/import.h; FAILED_PRECONDITION for a dump without the writeset of its
// present era:
//         of a device in use it lacks what was written last, and one that was made with --logical
//         has only the first of the eras in which a block was written. Cost: one pass.
absl::StatusOr<ChangeMap> ReadEraDump(ByteStream& stream, const EraOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_H_
