// What an ext2, ext3 or ext4 file system has allocated, read from its own block bitmaps: for images
// whose storage knows nothing, or less. Part of cbt::source; needs libext2fs, without which the
// factory is UNIMPLEMENTED.
//
// What is free in the file system is left out, whatever bytes are there. A volume that is restored
// from the allocated blocks alone holds the same files and differs in free space.
//
// The format: https://docs.kernel.org/filesystems/ext4/.
#ifndef CBT_SOURCE_EXT_FILESYSTEM_H_
#define CBT_SOURCE_EXT_FILESYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/image.h"

namespace cbt {

struct ExtOptions {
  // A file system that was not unmounted cleanly (its journal has not been replayed, or errors or
  // orphans are being dealt with) has bitmaps that can't be trusted. It is refused, or with this
  // the whole image counts as allocated.
  bool over_report_unclean = false;
};

// How many bytes of an image LooksLikeExt() looks at.
inline constexpr size_t kExtProbeBytes = 2048;

// True when an image that begins with these bytes (kExtProbeBytes; fewer: false) has the mark of
// ext2, ext3 or ext4. No promise that it is one.
bool LooksLikeExt(std::span<const uint8_t> first_bytes) noexcept;

// The blocks that are in use, as maximal extents: what the bitmaps say, the metadata of groups
// without a bitmap on disk, the boot block, and everything behind the file system's end. With
// bigalloc, whole clusters. Capacity is the image's size, granularity the file system's block size.
//
// What must be true, else DATA_LOSS: the file system fits into the image; the checksums of
// superblock, group descriptors and bitmaps match, where there are any; a bitmap has as many free
// blocks as its group says, and does not call its group's own metadata free.
//
// Errors: INVALID_ARGUMENT without an image, or for one that has no such file system;
//         FAILED_PRECONDITION when it is not clean (see ExtOptions), when it is the journal of
//         another, or has features that nobody here knows: also read-only compatible ones, since
//         they may change what the bitmap means; RESOURCE_EXHAUSTED for more than 256 MiB of group
//         descriptors (512 TiB with blocks of 4 KiB), and when memory runs out below libext2fs;
//         UNIMPLEMENTED when built without libext2fs.
//         From Next(): DATA_LOSS, UNAVAILABLE, ABORTED when the image changed.
// Cost:   the factory reads all group descriptors and keeps them (64 bytes for 128 MiB of volume at
//         4 KiB a block); Next() reads a block for each group, and keeps one; Seek() O(1).
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtAllocationCursor(
    std::shared_ptr<const Image> image, const ExtOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_EXT_FILESYSTEM_H_
