#include "source/ext/ext_superblock.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cbt/extent.h"
#include "cbt/source/ext_filesystem.h"
#include "cbt/units.h"

namespace cbt {
namespace {

constexpr size_t kMagicAt = kExtMagicOffset - kExtSuperblockOffset;

// Feature bits. Compatible ones, by definition, never change what a bitmap means.
constexpr uint32_t kRecover = 0x4;
constexpr uint32_t kJournalDevice = 0x8;
constexpr uint32_t kMetaGroups = 0x10;
constexpr uint32_t kSixtyFourBits = 0x80;
constexpr uint32_t kFlexGroups = 0x200;
// filetype, recover, meta_bg, extents, 64bit, mmp, flex_bg, ea_inode, csum_seed, largedir,
// inline_data, encrypt, casefold
constexpr uint32_t kKnownIncompatible = 0x2 | kRecover | kMetaGroups | 0x40 | kSixtyFourBits |
                                        0x100 | kFlexGroups | 0x400 | 0x2000 | 0x4000 | 0x8000 |
                                        0x10000 | 0x20000;
constexpr uint32_t kGroupChecksums = 0x10;
constexpr uint32_t kBigalloc = 0x200;
constexpr uint32_t kMetadataChecksums = 0x400;
// sparse_super, large_file, btree_dir, huge_file, uninit_bg, dir_nlink, extra_isize, quota,
// bigalloc, metadata_csum, read-only, project, shared_blocks, verity, orphan_present
constexpr uint32_t kKnownReadOnly = 0x1 | 0x2 | 0x4 | 0x8 | kGroupChecksums | 0x20 | 0x40 | 0x100 |
                                    kBigalloc | kMetadataChecksums | 0x1000 | 0x2000 | 0x4000 |
                                    0x8000 | 0x10000;

constexpr uint32_t kStateValid = 0x1;
constexpr uint32_t kStateErrors = 0x2;
constexpr uint32_t kStateOrphans = 0x4;

constexpr uint64_t kMaxTableBytes = 256 * kMiB;

class Fields {
 public:
  explicit Fields(const uint8_t* bytes) : bytes_(bytes) {}
  uint32_t U16(size_t at) const { return uint32_t{bytes_[at]} | uint32_t{bytes_[at + 1]} << 8; }
  uint32_t U32(size_t at) const { return U16(at) | U16(at + 2) << 16; }
  uint32_t U8(size_t at) const { return bytes_[at]; }

 private:
  const uint8_t* const bytes_;
};

std::string WhyUnclean(uint32_t incompatible, uint32_t state) {
  if ((incompatible & kRecover) != 0) return "its journal has not been replayed";
  if ((state & kStateValid) == 0) return "it was not unmounted";
  if ((state & kStateErrors) != 0) return "it is marked as having errors";
  if ((state & kStateOrphans) != 0) return "its orphans are being recovered";
  return "";
}

}  // namespace

bool LooksLikeExt(std::span<const uint8_t> first_bytes) noexcept {
  if (first_bytes.size() < kExtProbeBytes) return false;
  return Fields(first_bytes.data() + kExtSuperblockOffset).U16(kMagicAt) == 0xef53;
}

absl::StatusOr<ExtGeometry> ReadExtSuperblock(std::span<const uint8_t, kExtSuperblockBytes> bytes,
                                              uint64_t image_size, const std::string& label) {
  const Fields fields(bytes.data());
  const auto where = [&](size_t at) {
    return absl::StrCat(label, ": superblock at offset ", kExtSuperblockOffset + at, ": ");
  };
  if (fields.U16(kMagicAt) != 0xef53) {
    return absl::InvalidArgumentError(
        absl::StrCat(where(kMagicAt), "no magic number of ext2, ext3 or ext4"));
  }
  const auto wrong = [&](size_t at, const char* what, uint64_t value) {
    return absl::DataLossError(absl::StrCat(where(at), what, " can't be ", value));
  };
  const uint32_t incompatible = fields.U32(0x60);
  const uint32_t read_only = fields.U32(0x64);
  if ((incompatible & kJournalDevice) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(where(0x60), "the journal of another file system, not a file system"));
  }
  if ((incompatible & ~kKnownIncompatible) != 0 || (read_only & ~kKnownReadOnly) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(where(0x60), "unknown features: incompatible 0x",
                     absl::Hex(incompatible & ~kKnownIncompatible), ", read-only compatible 0x",
                     absl::Hex(read_only & ~kKnownReadOnly)));
  }
  if (fields.U32(0x4c) > 1) return wrong(0x4c, "the revision", fields.U32(0x4c));
  // A copy of the superblock, further on in its file system, says so: the image begins there.
  if (fields.U32(0x4c) == 1 && fields.U16(0x5a) != 0) {
    return wrong(0x5a, "the group of the first superblock", fields.U16(0x5a));
  }

  ExtGeometry geometry;
  const uint32_t log_block = fields.U32(0x18);
  if (log_block > 6) return wrong(0x18, "the logarithm of the block size", log_block);
  geometry.block_size = uint32_t{1024} << log_block;
  const uint32_t log_cluster = fields.U32(0x1c);
  const bool bigalloc = (read_only & kBigalloc) != 0;
  if (bigalloc && (log_cluster < log_block || log_cluster > 19)) {
    return wrong(0x1c, "the logarithm of the cluster size", log_cluster);
  }
  geometry.blocks_per_cluster = bigalloc ? uint32_t{1} << (log_cluster - log_block) : 1;

  geometry.first_block = fields.U32(0x14);
  if (geometry.first_block > (log_block == 0 ? 1u : 0u)) {
    return wrong(0x14, "the first data block", geometry.first_block);
  }
  geometry.block_count = fields.U32(0x4);
  if ((incompatible & kSixtyFourBits) != 0) {
    geometry.block_count |= uint64_t{fields.U32(0x150)} << 32;
  }
  // Checked before any multiplication: blocks are at least 1024 bytes, so that this can't wrap.
  if (geometry.block_count > kMaxCapacity / geometry.block_size ||
      geometry.block_count < geometry.first_block + 2) {
    return wrong(0x4, "the number of blocks", geometry.block_count);
  }
  if (geometry.end() > image_size) {
    return absl::DataLossError(absl::StrCat(where(0x4), "the file system has ", geometry.end(),
                                            " bytes, the image only ", image_size));
  }

  geometry.blocks_per_group = fields.U32(0x20);
  const uint32_t clusters_per_group = fields.U32(0x24);
  const uint64_t most = uint64_t{8} * geometry.block_size;
  if (bigalloc) {
    if (clusters_per_group == 0 || clusters_per_group % 8 != 0 || clusters_per_group > most) {
      return wrong(0x24, "the number of clusters of a group", clusters_per_group);
    }
    if (uint64_t{clusters_per_group} * geometry.blocks_per_cluster != geometry.blocks_per_group) {
      return wrong(0x20, "the number of blocks of a group", geometry.blocks_per_group);
    }
  } else if (geometry.blocks_per_group == 0 || geometry.blocks_per_group % 8 != 0 ||
             geometry.blocks_per_group > most) {
    return wrong(0x20, "the number of blocks of a group", geometry.blocks_per_group);
  }
  const uint64_t groups =
      BlockCount(geometry.block_count - geometry.first_block, geometry.blocks_per_group);

  const bool wide = (incompatible & kSixtyFourBits) != 0;
  const uint32_t descriptor = wide ? fields.U16(0xfe) : 32;
  if (wide && (descriptor < 64 || descriptor > 1024 || !IsPowerOfTwo(descriptor))) {
    return wrong(0xfe, "the size of a group descriptor", descriptor);
  }
  if (groups > kMaxTableBytes / descriptor) {
    return absl::ResourceExhaustedError(absl::StrCat(where(0x4), groups,
                                                     " groups of blocks; descriptors above ",
                                                     kMaxTableBytes, " bytes are not read"));
  }
  geometry.group_count = static_cast<uint32_t>(groups);

  const uint32_t inodes = fields.U32(0x28);
  if (inodes == 0 || inodes > most) return wrong(0x28, "the number of inodes of a group", inodes);
  if (fields.U32(0x4c) == 1) {
    const uint32_t inode_size = fields.U16(0x58);
    if (inode_size < 128 || inode_size > geometry.block_size || !IsPowerOfTwo(inode_size)) {
      return wrong(0x58, "the size of an inode", inode_size);
    }
  }

  geometry.reserved_table_blocks = fields.U16(0xce);
  if (geometry.reserved_table_blocks > geometry.block_size / 4) {
    return wrong(0xce, "the number of reserved table blocks", geometry.reserved_table_blocks);
  }
  geometry.meta_groups = (incompatible & kMetaGroups) != 0;
  geometry.first_meta_group = fields.U32(0x104);
  if (geometry.meta_groups &&
      geometry.first_meta_group > BlockCount(groups, geometry.block_size / descriptor)) {
    return wrong(0x104, "the first group of the meta group layout", geometry.first_meta_group);
  }
  if ((incompatible & kFlexGroups) != 0) {
    const uint32_t log_flex = fields.U8(0x174);
    if (log_flex > 31) return wrong(0x174, "the logarithm of groups that share", log_flex);
    geometry.groups_per_flex = uint32_t{1} << log_flex;
  }
  geometry.group_checksums = (read_only & (kGroupChecksums | kMetadataChecksums)) != 0;
  geometry.unclean = WhyUnclean(incompatible, fields.U16(0x3a));
  return geometry;
}

}  // namespace cbt
