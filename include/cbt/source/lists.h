// Lists of changed or allocated ranges that storage systems and their tools print. Part of
// cbt::source.
//
// An importer reads a list of ranges once, from a stream, and builds a change map: sorted, merged,
// rounded outward to the map's granularity, cut at the volume's end. The input is never held in
// memory, whatever its size; the map is, compressed (2 to 4 bytes per range in most cases).
//
// Ranges may come in any order and overlap. DATA_LOSS, which names the position in the input and
// the reason, and no map: for a range that wraps or reaches past the volume, an input that ends
// early, a syntax error, an invalid number. Zeroed, discarded and vanished ranges of a delta are
// changes.
#ifndef CBT_SOURCE_LISTS_H_
#define CBT_SOURCE_LISTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"

namespace cbt {

// What a source reports.
enum class SourcePurpose {
  kAllocated,  // what may hold data in a snapshot
  kDelta,      // what may differ from one snapshot to another
};

struct ImportOptions {
  // How to interpret the input. INVALID_ARGUMENT if the input itself says otherwise, or if it could
  // be either and this is empty.
  std::optional<SourcePurpose> purpose = {};

  // Size of the target in bytes. Required for formats that don't hold it; otherwise it must match
  // what they say, up to the rounding of their units.
  std::optional<uint64_t> capacity = {};

  // Size of the base in bytes if it was larger: how far the ranges of a delta may reach. Nothing
  // past the target's end is reported.
  std::optional<uint64_t> base_capacity = {};

  // Granularity of the map in bytes.
  uint64_t granularity = 4096;
};

// ---
// Responses of the Amazon EBS direct APIs, ListSnapshotBlocks and ListChangedBlocks, as JSON. Part
// of cbt::source; needs RapidJSON. The caller signs and sends the requests. Format:
// https://docs.aws.amazon.com/ebs/latest/APIReference/API_ListChangedBlocks.html

// Reads concatenated pages (or an array of them), in the order in which they were received. Every
// page but the last must have a NextToken, and the last must not: otherwise a page is missing.
// Pages have no numbers, so a page missing from the middle can't be detected here; the caller must
// make sure that it has all of them. An empty page does not end the list. A changed block without a
// second token no longer exists in the target, which is a change. The volume's size is the
// VolumeSize, in GiB, of the pages, or else `options.capacity`.
// Errors: those of all importers.
// Cost:   one pass; memory also for the block numbers of a page that gives its BlockSize after
//         them, RESOURCE_EXHAUSTED over 2^22 ranges.
absl::StatusOr<ChangeMap> ReadEbsPages(ByteStream& stream, const ImportOptions& options = {});

// ---
// Responses of VMware's VirtualMachine.QueryChangedDiskAreas, DiskChangeInfo objects as JSON. Part
// of cbt::source; needs RapidJSON. The caller makes the queries.

// Reads concatenated responses (or an array of them). Each covers [startOffset, startOffset +
// length); together they must cover [0, options.capacity), which is required, in ascending order
// without a gap: a query that was not repeated to the end of the disk is DATA_LOSS. A query with
// changeId "*" reports allocation, any other a delta; the response does not say which.
// Errors: those of all importers.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadVmwareAreas(ByteStream& stream, const ImportOptions& options);

// ---
// The output of `qemu-img map --output=json`. Part of cbt::source; needs RapidJSON.
// Format: https://www.qemu.org/docs/master/tools/qemu-img.html#cmdoption-qemu-img-commands-arg-map

// kAllocated: everything not known to read as zeros. kDelta: what the topmost image of the chain
// holds itself (data, zeros and discarded ranges alike), which is what an overlay changed of its
// backing file. The entries must cover the volume without a gap. Its size is the end of the last
// entry unless `options.capacity` says where in the last 512 bytes the volume ends.
// Errors: those of all importers; INVALID_ARGUMENT for a delta whose topmost image has entries
//         that are neither data nor zeros, as maps over an NBD dirty bitmap (x-dirty-bitmap) do, or
//         has no backing file: it holds part of the volume, and no entry is from below it.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadQemuMap(ByteStream& stream, const ImportOptions& options = {});

// ---
// Ceph RBD: the output of `rbd export-diff`, `rbd export --export-format 2` and `rbd diff --format
// json`. Part of cbt::source; the last one needs RapidJSON. For a live image see
// cbt/bridge/rbd_live.h. Format: https://docs.ceph.com/en/latest/dev/rbd-diff/

struct RbdDiffOptions {
  ImportOptions import = {};

  // For an export with several diffs (`rbd export --export-format 2`): the snapshots between which
  // to report changes. An empty target is the image itself; kDelta needs a base. For a stream with
  // one diff they must match the stream's own names, if given.
  std::string base = {};
  std::string target = {};
};

// The ranges of a diff stream, version 1 or 2, or of the diffs of an export. Data is skipped and
// never held. A diff without a base snapshot reports allocation, one with a base a delta; the names
// become the map's identity. The stream holds the volume's size.
// Errors: those of all importers; NOT_FOUND for snapshots that the stream does not have, DATA_LOSS
//         for an export in which two have the same name, RESOURCE_EXHAUSTED for more than 16 MiB of
//         names.
// Cost:   one pass over the records.
absl::StatusOr<ChangeMap> ReadRbdDiff(ByteStream& stream, const RbdDiffOptions& options = {});

// The ranges of `rbd diff --format json`, including those that no longer exist. The list does not
// say whether it starts from a snapshot; `options.capacity` is required.
// Errors: those of all importers.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadRbdDiffJson(ByteStream& stream, const ImportOptions& options);

// ---
// The output of the tools for device mapper's thin and era targets: `thin_delta` (with or without
// --verbose), `thin_dump`, `era_invalidate` and `era_dump`. Part of cbt::source; needs expat.
// Format: https://github.com/jthornber/thin-provisioning-tools, the manual pages thin_delta(8),
// thin_dump(8), era_invalidate(8), era_dump(8).

// `thin_delta --snap1 BASE --snap2 TARGET`: ranges that differ or are only in the base or only in
// the target have changed. `options.capacity` is required; the XML does not hold a device's size.
// Errors: those of all importers; also for an unknown element, which could be a change.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadThinDelta(ByteStream& stream, const ImportOptions& options);

struct ThinDumpOptions {
  ImportOptions import = {};

  // dev_id of the thin device; not needed if the dump has one device.
  std::optional<uint64_t> device = {};
};

// `thin_dump`: what is mapped in one device. Shared parts (`def`, `ref`) are followed. With an
// external origin, unmapped blocks are read from there and not reported here. `capacity` is
// required.
// Errors: those of all importers; NOT_FOUND for a device that is not in the dump, DATA_LOSS if the
//         number of mappings is not the one that the dump states.
// Cost:   one pass; memory also for the maps of shared parts.
absl::StatusOr<ChangeMap> ReadThinDump(ByteStream& stream, const ThinDumpOptions& options);

struct EraOptions {
  ImportOptions import = {};

  // Bytes per block; for era_invalidate, whose output does not hold it.
  std::optional<uint64_t> block_size = {};

  // era_invalidate: takes a list without blocks for a device that was not written to. Versions 1.0
  // to 1.3.2 also print it where they do not know the answer, so it is refused otherwise.
  bool empty_is_unwritten = false;

  // era_dump: blocks written in this era or later have changed, as with `era_invalidate
  // --written-since`.
  std::optional<uint64_t> since_era = {};
};

// `era_invalidate --written-since ERA`: the blocks that it lists. `block_size` and `capacity` are
// required. For a device in use the list is complete only with --metadata-snapshot; the output does
// not show whether it was given.
// Errors: those of all importers.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadEraInvalidate(ByteStream& stream, const EraOptions& options);

// `era_dump`: the same from the whole metadata. `since_era` is required; the capacity, if not
// given, is the number of blocks times their size.
// Errors: those of all importers; FAILED_PRECONDITION for a dump without the writeset of its
//         current era: for a device in use it lacks the latest writes, and one made with --logical
//         has only the first of the eras in which a block was written.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadEraDump(ByteStream& stream, const EraOptions& options);

// ---
// What the cbtctl command prints with --format ndjson, json and csv. Part of cbt::source; the JSON
// forms need RapidJSON. Format: docs/reference/answers.md

// The tuples of a complete answer. They must ascend, and be those that the end marker counts (for
// JSON also their bytes and digest). An answer without the marker was cut and is DATA_LOSS, as is
// one that ends with an error; one that holds only a part of the volume (--starting-offset,
// --length) is INVALID_ARGUMENT. It does not say whether it reports allocation or a delta.
// `options.capacity` is required for csv, which does not hold the volume's size. The last block of
// a FIXED_LENGTH answer is cut at the volume's end.
// Errors: those of all importers.
// Cost:   one pass.
absl::StatusOr<ChangeMap> ReadNdjsonAnswer(ByteStream& stream, const ImportOptions& options = {});
absl::StatusOr<ChangeMap> ReadJsonAnswer(ByteStream& stream, const ImportOptions& options = {});
absl::StatusOr<ChangeMap> ReadCsvAnswer(ByteStream& stream, const ImportOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_H_
