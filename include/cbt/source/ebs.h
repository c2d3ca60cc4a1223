// Answers of the Amazon EBS direct APIs, ListSnapshotBlocks and ListChangedBlocks, as JSON. Part of
// cbt::source; needs RapidJSON. Signing and asking is the caller's.
// Format: https://docs.aws.amazon.com/ebs/latest/APIReference/API_ListChangedBlocks.html
#ifndef CBT_SOURCE_EBS_H_
#define CBT_SOURCE_EBS_H_

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/import.h"

namespace cbt {

// Reads pages behind each other (or an array of them), in the order in which they came. Every page
// but the last one has a NextToken, and the last has none: else a page is missing. Pages have no
// numbers: that one is missing from the middle can't be noticed here, the caller makes sure of
// each. Empty pages are no end. A changed block without a second token is gone in the target, which
// is a change. The volume's size is VolumeSize, in GiB, of the pages, or else `options.capacity`.
// Errors: see cbt/import.h. Cost: one pass; memory also for the block numbers of a page that tells
//         its BlockSize behind them, RESOURCE_EXHAUSTED over 2^22 ranges.
absl::StatusOr<ChangeMap> ReadEbsPages(ByteStream& stream, const ImportOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_EBS_H_
