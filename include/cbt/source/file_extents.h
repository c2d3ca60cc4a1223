// Files as change sources by where their file system keeps them: if two clones map the same bytes
// of the disk, those ranges are equal and need not be read. Part of cbt::source.
//
// Placement comes from FIEMAP (linux/fiemap.h, Documentation/filesystems/fiemap.rst), after all
// writes have been flushed (FIEMAP_FLAG_SYNC): before that, an extent may have no place yet, and a
// file that shares its blocks may still show the old ones.
//
// Placement proves that two ranges are equal only while both files exist and neither is written to:
// a file that shares its blocks with no other is overwritten in place and keeps its addresses. So
// the addresses of a deleted base are useless, and both files must stay frozen from before the
// cursor is made until it is complete. A cursor that detects a write to either fails with ABORTED
// before it is complete.
#ifndef CBT_SOURCE_FILE_EXTENTS_H_
#define CBT_SOURCE_FILE_EXTENTS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/image.h"

namespace cbt {

// OK if equal addresses prove equal bytes: both are regular files of one XFS on one of its devices,
// or of one btrfs, in any of its subvolumes.
// Errors: FAILED_PRECONDITION naming the reason: another kind of file system (ext4 has no clones;
//         for stacked and multi-device ones the addresses don't say which disk is meant), two file
//         systems, files on the data and the realtime device of an XFS.
// Cost:   a few system calls.
absl::Status CheckSharedPlacement(const Image& base, const Image& target);

struct ReflinkDeltaOptions {
  // block_size: the granularity of the answer. executor, chunks_in_flight: for what must be read.
  // skip_holes: without it, ranges that are holes on both sides are read too.
  // skip_zeros has no effect here.
  ImageOptions images = {};

  // Ranges in different places may still hold the same bytes. If set, they are read, and left out
  // if equal; otherwise they are reported and nothing is read.
  bool compare_data = false;

  // If placement proves nothing, fails with the error of CheckSharedPlacement() instead of reading
  // both files in full.
  bool require_placement = false;
};

// The blocks in which `target` may differ from `base`, from the two lists of extents:
//
//   both unmapped or unwritten                 equal, both read as zeros
//   same address on both sides                 equal
//   an address without meaning on a side       the bytes are read and compared: data that is
//                                              compressed, encrypted, inline, packed, not yet
//                                              placed, or of an unknown kind
//   anything else                              changed, or compared with options.compare_data
//
// The capacity is the target's size; the shorter file counts as followed by zeros. If placement
// proves nothing (CheckSharedPlacement(), or no FIEMAP on either side) this is
// MakeImageDeltaCursor(). Never reports less than that does, and, apart from rounding, no more than
// what was written or moved since the clone was made.
//
// Extents that move in the meantime (defragmentation, balancing) are detected by asking for the
// base's twice, before and after the target's; their bytes are compared then.
//
// Errors: INVALID_ARGUMENT for options out of range, FAILED_PRECONDITION (require_placement);
//         Next(): DATA_LOSS for lists that contradict themselves, UNAVAILABLE, ABORTED.
// Cost:   three system calls for up to 1024 extents; reads only what must be compared. Seek() O(1).
//         Memory: two lists of 1024 extents, and what MakeImageDeltaCursor() needs.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeReflinkDeltaCursor(
    std::shared_ptr<const Image> base, std::shared_ptr<const Image> target,
    const ReflinkDeltaOptions& options = {});

// The blocks of `image` that its list of extents reports as written: everything mapped and not
// UNWRITTEN (preallocated, and reading as zeros once all has been flushed), and everything mapped
// in an unknown way.
//
// For files at rest, with one system call per 1024 extents. MakeImageAllocationCursor() asks twice
// per range and reports more: SEEK_DATA counts cached pages over an unwritten extent as data, even
// those that were only read. It is the safer choice for files that may become dirty again at once:
// both see what was written, but SEEK_DATA sees it when each extent is asked for, while a list of
// 1024 here is as old as the flush before it. Used only for XFS, btrfs and ext4; on anything else,
// and without FIEMAP, this is MakeImageAllocationCursor().
// options:block_size, and skip_holes: without it everything is allocated. With skip_zeros this is
//         MakeImageAllocationCursor(), which reads.
// Errors: as MakeReflinkDeltaCursor().
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentAllocationCursor(
    std::shared_ptr<const Image> image, const ImageOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_FILE_EXTENTS_H_
