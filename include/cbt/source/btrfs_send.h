// What changed in a file between two snapshots of a btrfs subvolume, from the stream that
// `btrfs send --no-data -p BASE TARGET` writes without reading any data. Part of cbt::source.
//
// The format is that of fs/btrfs/send.h of the kernel and of
// https://btrfs.readthedocs.io/en/latest/dev/dev-send-stream.html, versions 1 to 3.
#ifndef CBT_SOURCE_BTRFS_SEND_H_
#define CBT_SOURCE_BTRFS_SEND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"

namespace cbt {

struct BtrfsSendOptions {
  // The file in the target snapshot, from the subvolume's root: "images/vm.raw". If empty: the only
  // file that the stream changes or creates.
  std::string path = {};

  // The file's path in the base snapshot, if different; if empty: as in the target. A file that was
  // not at this path in the base counts as changed everywhere.
  std::string base_path = {};

  // Granularity of the map in bytes. Changes are known in multiples of the file system's sectors,
  // 4096 bytes on most.
  uint64_t granularity = 4096;

  // The file's size in the target, in bytes. A stream holds it only if it changed or the file is
  // new; it must then match.
  std::optional<uint64_t> capacity = {};

  // The file has no other name (hard link) in the base. A stream refers to a file by one of its
  // names only, so a stream that does not name `path` and changes other files may refer to it by an
  // unknown name: an error unless this is set.
  bool single_name = false;

  // The file exists, at `path` in the target and at `base_path` in the base, and is not in a nested
  // subvolume, whose files are in no stream of the enclosing one. A file that a stream never names
  // may be unchanged, misspelt or elsewhere, and the stream does not show which: an error unless
  // this is set.
  bool path_exists = false;

  // The identity of the map. Empty fields are filled in: volume with the path, target with the name
  // of the snapshot, base with the UUID of the base, since streams do not hold its name. A full
  // stream has no base.
  ChangeMapIdentity identity = {};
};

// Reads a stream to its end and returns the blocks of one file that it changes: what is written,
// cloned, allocated, truncated, or reported as changed (UPDATE_EXTENT). Data is checked and
// skipped, never kept. For a full stream (without -p) this is what is allocated in the file.
//
// Files are followed through renames and links. If a file was replaced (recreated under its name,
// or moved there), all of it counts as changed; so does what was cut off and grown again.
//
// Errors:  DATA_LOSS naming the byte: a command that is cut, has a wrong checksum, is incomplete or
//          can't follow from those before; no END; anything after it. UNIMPLEMENTED: another
//          version of the format, an unknown command or attribute (it might be a write). NOT_FOUND:
//          the stream removes the file, or creates a directory above it but not the file; a full
//          stream does not create it. (Otherwise a missing file can't be detected: see
//          path_exists.) INVALID_ARGUMENT: options out of range, a path that the stream shows not
//          to be a regular file's, or a capacity that contradicts the stream. FAILED_PRECONDITION:
//          the stream does not hold the capacity; without a path, the stream changes no file or
//          several, which the error names; with one, see path_exists and single_name.
//          RESOURCE_EXHAUSTED: too many files or changes to keep (about 512 MiB). Those of
//          `stream`.
// Cost:    one pass; a checksum over all bytes. Memory for the changes of the file in question, and
//          some hundred bytes for every path that the stream names.
absl::StatusOr<ChangeMap> ReadBtrfsSend(ByteStream& stream, const BtrfsSendOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_BTRFS_SEND_H_
