// The superblock of ext2, ext3 and ext4, checked far enough to pass it to a library.
// https://docs.kernel.org/filesystems/ext4/globals.html
#ifndef CBT_SOURCE_EXT_EXT_SUPERBLOCK_H_
#define CBT_SOURCE_EXT_EXT_SUPERBLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt {

inline constexpr uint64_t kExtSuperblockOffset = 1024;
inline constexpr size_t kExtSuperblockBytes = 1024;
inline constexpr uint64_t kExtMagicOffset = kExtSuperblockOffset + 0x38;

// The contents of a superblock. The numbers are consistent with each other and with the image's
// size: every block lies inside the image.
struct ExtGeometry {
  uint32_t block_size = 0;          // bytes, a power of two from 1024 to 65536
  uint64_t first_block = 0;         // first block of the first group: 0 or 1
  uint64_t block_count = 0;         // from block 0 on
  uint32_t blocks_per_cluster = 0;  // a power of two; 1 without bigalloc
  uint32_t blocks_per_group = 0;    // a multiple of 8 clusters
  uint32_t group_count = 0;
  uint32_t groups_per_flex = 1;        // metadata may lie in any group of the flex group
  uint32_t reserved_table_blocks = 0;  // after each copy of the group descriptor table
  uint32_t first_meta_group = 0;
  bool meta_groups = false;
  bool group_checksums = false;  // group descriptors have checksums
  std::string unclean;           // why the bitmaps can't be trusted; empty if they can

  uint32_t clusters_per_group() const noexcept { return blocks_per_group / blocks_per_cluster; }
  uint64_t end() const noexcept { return block_count * block_size; }
};

// Reads the 1024 bytes of a superblock of an image with `image_size` bytes. `label` is used in
// errors.
// Errors: INVALID_ARGUMENT if it is not a superblock, FAILED_PRECONDITION for unknown features,
//         DATA_LOSS for invalid numbers, RESOURCE_EXHAUSTED.
absl::StatusOr<ExtGeometry> ReadExtSuperblock(std::span<const uint8_t, kExtSuperblockBytes> bytes,
                                              uint64_t image_size, const std::string& label);

}  // namespace cbt

#endif  // CBT_SOURCE_EXT_EXT_SUPERBLOCK_H_
