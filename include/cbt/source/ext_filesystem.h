// What an ext2, ext3 or ext4 file system has allocated, from its own block bitmaps: for images
// whose storage knows less, or nothing. Part of cbt::source; needs libext2fs, without which the
// factory is UNIMPLEMENTED.
//
// Space that is free in the file system is left out, whatever it holds. A volume restored from the
// allocated blocks alone holds the same files and differs in free space.
//
// The format: https://docs.kernel.org/filesystems/ext4/.
#ifndef CBT_SOURCE_EXT_FILESYSTEM_H_
#define CBT_SOURCE_EXT_FILESYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/image.h"

namespace cbt {

struct ExtOptions {
  // A file system that was not unmounted cleanly (its journal has not been replayed, or it has
  // errors or orphans) has unreliable bitmaps. It is refused; if this is set, the whole image
  // counts as allocated instead.
  bool over_report_unclean = false;

  // A superblock may be left over: what was written to the disk later, such as a partition table,
  // md or ZFS, can leave it in place. So an image in which anything else has a signature is
  // refused. Set this where the file system is known to fill the image.
  bool ignore_other_signatures = false;

  // Ends the reading of the group descriptors with CANCELLED.
  std::stop_token stop = {};
};

// The number of bytes that LooksLikeExt() needs.
inline constexpr size_t kExtProbeBytes = 2048;

// True if these first bytes of an image (kExtProbeBytes; fewer: false) have the magic number of
// ext2, ext3 or ext4. The image may still be something else.
bool LooksLikeExt(std::span<const uint8_t> first_bytes) noexcept;

// The blocks in use, as maximal extents: those that the bitmaps mark, the metadata of groups
// without a bitmap on disk, the boot block, and everything after the file system's end. With
// bigalloc, whole clusters. Capacity is the image's size, granularity the file system's block size.
//
// DATA_LOSS unless: the file system fits into the image; the checksums of superblock, group
// descriptors and bitmaps match, if they have any; each bitmap has as many free blocks as its group
// states, and does not mark its group's own metadata as free.
//
// Errors: INVALID_ARGUMENT without an image, or for one without such a file system;
//         FAILED_PRECONDITION for a file system that is not clean (see ExtOptions), that is the
//         journal of another, or that has unknown features, even read-only compatible ones, since
//         they may change what the bitmap means, and for an image with another signature;
//         RESOURCE_EXHAUSTED for more than 256 MiB of group descriptors (512 TiB with blocks of 4
//         KiB), and when libext2fs runs out of memory; UNIMPLEMENTED when built without libext2fs,
//         or without libblkid, which knows the other signatures (see ExtOptions).
//         From Next(): DATA_LOSS, UNAVAILABLE, ABORTED when the image changed.
// Cost:   the factory reads all group descriptors and keeps them (64 bytes per 128 MiB of volume at
//         4 KiB per block); Next() reads one block per group, and keeps one; Seek() O(1).
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtAllocationCursor(
    std::shared_ptr<const Image> image, const ExtOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_EXT_FILESYSTEM_H_
