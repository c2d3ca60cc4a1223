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
  // The file in the target snapshot, from the subvolume's top: "images/vm.raw". Empty: the one file
  // that the stream changes or makes.
  std::string path = {};

  // The file's path in the base snapshot, where it was another one; empty: as in the target. A file
  // that was not at this path in the base counts as changed everywhere.
  std::string base_path = {};

  // Granularity of the map in bytes. Changes are known in multiples of the file system's sectors,
  // 4096 bytes on most.
  uint64_t granularity = 4096;

  // The file's size in the target, in bytes. Streams tell it only where it changed or the file is
  // new; what the stream tells must agree.
  std::optional<uint64_t> capacity = {};

  // The file has no other name (hard link) in the base. A stream calls a file by one of its names
  // only, so one that doesn't name `path` and changes other files may mean it by a name that nobody
  // knows here: an error, unless this says that there is none.
  bool single_name = false;

  // The file is there, at `path` in the target and at `base_path` in the base, and not inside of a
  // nested subvolume, whose files are in no stream of the one around it. What a stream never names
  // is unchanged, or misspelt, or somewhere else, and nobody can tell by the stream: an error,
  // unless this says that it is there.
  bool path_exists = false;

  // What the map is to say of itself. Empty fields are filled in: volume with the path, target with
  // the name of the snapshot, base with the identity (UUID) of the base, whose name no stream
  // holds. A full stream has no base.
  ChangeMapIdentity identity = {};
};

// Reads a stream to its end and returns the blocks of one file that it changes: what is written,
// cloned, allocated, truncated, or said to have changed (UPDATE_EXTENT). Data is checked and passed
// over, never kept. From a full stream (without -p) this is what is allocated in the file.
//
// Files are followed through renames and links. Everything counts as changed in a file that was
// replaced (made anew under the name, or moved there). What was cut off and grown again counts as
// changed too.
//
// Errors:  DATA_LOSS that names the byte: a command that is cut, has a wrong checksum, lacks what
//          it needs or can't follow from those before; no END; anything behind it.
//          UNIMPLEMENTED: another version of the format, a command or attribute that is not known
//          (it might be a write).
//          NOT_FOUND: the stream takes the file away, or makes what is above it and not the file;
//          a full stream doesn't make it. (That the target has no such file can't be known
//          otherwise: see path_exists.) INVALID_ARGUMENT: options out of range, a path that is no
//          regular file's as far as the stream tells, or a capacity that it contradicts.
//          FAILED_PRECONDITION: the stream doesn't tell the capacity; with no path, the stream
//          changes no file or several, which it names; with one, see path_exists and single_name.
//          RESOURCE_EXHAUSTED: too many files or changes to keep (about 512 MiB). Those of
//          `stream`.
// Cost:    one pass; a checksum over all bytes. Memory for the changes of the file in question, and
//          some hundred bytes for every path that the stream names.
absl::StatusOr<ChangeMap> ReadBtrfsSend(ByteStream& stream, const BtrfsSendOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_BTRFS_SEND_H_
