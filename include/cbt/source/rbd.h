// Ceph RBD: what `rbd export-diff`, `rbd export --export-format 2` and `rbd diff --format json`
// write. Part of cbt::source; the last one needs RapidJSON. For a live image see cbt/rbd_live.h.
// Format: https://docs.ceph.com/en/latest/dev/rbd-diff/
#ifndef CBT_SOURCE_RBD_H_
#define CBT_SOURCE_RBD_H_

#include <string>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/import.h"

namespace cbt {

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
// Errors: see cbt/import.h; NOT_FOUND for snapshots that the stream does not have, DATA_LOSS for an
//         export in which two have one name, RESOURCE_EXHAUSTED for more than 16 MiB of names.
// Cost:   one pass over the records.
absl::StatusOr<ChangeMap> ReadRbdDiff(ByteStream& stream, const RbdDiffOptions& options = {});

// The ranges of `rbd diff --format json`, those that do not exist any more too. Whether it was
// asked from a snapshot or not the list does not say; `options.capacity` is needed.
// Errors: see cbt/import.h. Cost: one pass.
absl::StatusOr<ChangeMap> ReadRbdDiffJson(ByteStream& stream, const ImportOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_RBD_H_
