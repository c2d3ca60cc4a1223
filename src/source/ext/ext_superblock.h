// The superblock of ext2, ext3 and ext4, checked so far that a library can be let near it.
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

// What the superblock says. Numbers are consistent with each other and with the image's size: every
// block's offset in bytes is below it.
struct ExtGeometry {
  uint32_t block_size = 0;          // bytes, a power of two from 1024 to 65536
  uint64_t first_block = 0;         // of the first group: 0 or 1
  uint64_t block_count = 0;         // from block 0 on
  uint32_t blocks_per_cluster = 0;  // a power of two; 1 without bigalloc
  uint32_t blocks_per_group = 0;    // a multiple of 8 clusters
  uint32_t group_count = 0;
  uint32_t groups_per_flex = 1;        // whose metadata may lie in any of them
  uint32_t reserved_table_blocks = 0;  // behind each copy of the table of group descriptors
  uint32_t first_meta_group = 0;
  bool meta_groups = false;
  bool group_checksums = false;  // group descriptors have checksums
  std::string unclean;           // why the bitmaps can't be trusted; empty when they can

  uint32_t clusters_per_group() const noexcept { return blocks_per_group / blocks_per_cluster; }
  uint64_t end() const noexcept { return block_count * block_size; }
};

// Reads the 1024 bytes of a superblock of an image with `image_size` bytes. `label` names it.
// Errors: INVALID_ARGUMENT when it is none, FAILED_PRECONDITION for features that are not known
//         here, DATA_LOSS for numbers that can't be, RESOURCE_EXHAUSTED.
absl::StatusOr<ExtGeometry> ReadExtSuperblock(std::span<const uint8_t, kExtSuperblockBytes> bytes,
                                              uint64_t image_size, const std::string& label);

}  // namespace cbt

#endif  // CBT_SOURCE_EXT_EXT_SUPERBLOCK_H_
