// Files as change sources by where their file system keeps them: two clones that map the same bytes
// of the disk need not be read to know that they are equal there. Part of cbt::source.
//
// What is asked is FIEMAP (linux/fiemap.h, Documentation/filesystems/fiemap.rst), after everything
// written has been flushed (FIEMAP_FLAG_SYNC): before that, an extent may have no place yet, and a
// file that shares its blocks may still show the old ones.
//
// Placement proves that two ranges are equal only while both files exist and nobody writes to
// either: a file that shares its blocks with none is overwritten in place and keeps its addresses.
// So a base that is gone can't be remembered by its addresses, and both files must stay frozen from
// before the cursor is made until it is complete. A cursor that sees that one was written to fails
// with ABORTED before it is complete.
#ifndef CBT_SOURCE_FILE_EXTENTS_H_
#define CBT_SOURCE_FILE_EXTENTS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/image.h"

namespace cbt {

// OK when equal addresses prove equal bytes: both are regular files of one XFS on one of its
// devices, or of one btrfs, whatever subvolumes they are in.
// Errors: FAILED_PRECONDITION that names the reason: another kind of file system (ext4 has no
//         clones; of stacked and of several-device ones the addresses don't say which disk is
//         meant), two file systems, files on the data and the realtime device of an XFS.
// Cost:   a few system calls.
absl::Status CheckSharedPlacement(const Image& base, const Image& target);

struct ReflinkDeltaOptions {
  // block_size: the granularity of the answer. executor, chunks_in_flight: for what must be read.
  // skip_holes: without it, ranges that are holes on both sides are read too.
  // skip_zeros has no meaning here.
  ImageOptions images = {};

  // Ranges that lie in different places may still hold the same bytes. With this they are read, and
  // left out when they do; without it they are reported and nothing is read.
  bool compare_data = false;

  // Refuses, with the error of CheckSharedPlacement(), instead of reading both files whole where
  // placement proves nothing.
  bool require_placement = false;
};

// The blocks in which `target` may differ from `base`, from the two lists of extents:
//
//   both unmapped or unwritten                 equal, both read as zeros
//   same address on both sides                 equal
//   an address that says little on a side      the bytes are read and compared: data that is
//                                              compressed, encrypted, inline, packed, not yet
//                                              placed, or of a kind that is not known here
//   anything else                              changed, or compared with options.compare_data
//
// The capacity is the target's size; the shorter file counts as followed by zeros. Where placement
// proves nothing (CheckSharedPlacement(), or no FIEMAP on either side) this is
// MakeImageDeltaCursor(). Never reports less than that does, and, but for rounding, no more than
// what was written or moved since the clone was made.
//
// Extents that move while they are asked for (defragmentation, balancing) are found by asking for
// the base's twice, around the target's; their bytes are compared then.
//
// Errors: INVALID_ARGUMENT for options out of range, FAILED_PRECONDITION (require_placement);
//         Next(): DATA_LOSS for lists that contradict themselves, UNAVAILABLE, ABORTED.
// Cost:   three system calls for up to 1024 extents; reads only what must be compared. Seek() O(1).
//         Memory: two lists of 1024 extents, and what MakeImageDeltaCursor() needs.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeReflinkDeltaCursor(
    std::shared_ptr<const Image> base, std::shared_ptr<const Image> target,
    const ReflinkDeltaOptions& options = {});

// The blocks of `image` that its list of extents calls written: everything that is mapped and not
// UNWRITTEN, which means preallocated and reading as zeros once all has been flushed; and
// everything that is mapped in a way that is not known here.
//
// For files at rest, with one system call for 1024 extents. MakeImageAllocationCursor() asks twice
// for each range and reports more: SEEK_DATA counts pages in the cache over an unwritten extent as
// data, also those that were only read. It is the safer choice for files that may be dirty again
// the moment after: both see what was written, but only SEEK_DATA at the moment it is asked, extent
// by extent; here a list of 1024 is as old as the flush before it. Used only for XFS,
// btrfs and ext4; on anything else, and without FIEMAP, this is MakeImageAllocationCursor().
// options: block_size, and skip_holes: without it everything is allocated. With skip_zeros this is
//          MakeImageAllocationCursor(), which reads.
// Errors:  as MakeReflinkDeltaCursor().
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentAllocationCursor(
    std::shared_ptr<const Image> image, const ImageOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_FILE_EXTENTS_H_
