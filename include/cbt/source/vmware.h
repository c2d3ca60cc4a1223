// Answers of VMware's VirtualMachine.QueryChangedDiskAreas, DiskChangeInfo objects as JSON. Part of
// cbt::source; needs RapidJSON. Asking is the caller's.
#ifndef CBT_SOURCE_VMWARE_H_
#define CBT_SOURCE_VMWARE_H_

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/import.h"

namespace cbt {

// Reads answers behind each other (or an array of them). Each covers [startOffset, startOffset +
// length); together they must cover [0, options.capacity), which is needed, in ascending order
// without a gap: a query that was not repeated to the disk's end is DATA_LOSS. What was asked with
// changeId "*" tells allocation, anything else a delta; the answer does not say which.
// Errors: see cbt/import.h. Cost: one pass.
absl::StatusOr<ChangeMap> ReadVmwareAreas(ByteStream& stream, const ImportOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_VMWARE_H_
