#include "cbt/source/ext_filesystem.h"

#ifdef CBT_HAVE_LIBEXT2FS
#include <ext2fs/ext2fs.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "source/ext/ext_superblock.h"
#include "source/input/time_limit.h"
#include "source/signature/signatures.h"

namespace cbt {

#ifdef CBT_HAVE_LIBEXT2FS

namespace {

// The maximum number of groups per Next().
constexpr int kGroupsPerCall = 256;

// The maximum size of a flex group whose groups are searched for the metadata of a group without a
// bitmap on disk; in larger ones such a group counts as full.
constexpr uint32_t kMaxGroupsPerFlex = 4096;

// An image as a libext2fs channel. Nothing is ever written: those calls fail.

struct Channel {
  const Image* image;
  std::stop_token stop;
  absl::Status failure;
  bool threw = false;  // a read ran out of memory
};

// The channel for the next open() on this thread; libext2fs passes only a name.
thread_local Channel* opening = nullptr;

errcode_t OpenChannel(const char* name, int, io_channel* out);

errcode_t CloseChannel(io_channel io) {
  if (--io->refcount > 0) return 0;
  ext2fs_free_mem(&io->name);
  return ext2fs_free_mem(&io);
}

errcode_t SetBlockSize(io_channel io, int block_size) {
  io->block_size = block_size;
  return 0;
}

// `count` blocks, or -count bytes.
errcode_t ReadBlocks(io_channel io, unsigned long long block, int count, void* data) {
  auto* const channel = static_cast<Channel*>(io->private_data);
  const auto block_size = static_cast<uint64_t>(io->block_size);
  const uint64_t length = count < 0 ? static_cast<uint64_t>(-int64_t{count})
                                    : static_cast<uint64_t>(count) * block_size;
  const uint64_t size = channel->image->size();
  if (block > size / block_size || length > size - block * block_size) return EXT2_ET_SHORT_READ;
  // No exception may pass through the library, which is C and would leak.
  try {
    absl::Status status =
        channel->stop.stop_requested() ? Stopped(channel->image->label()) : absl::OkStatus();
    if (status.ok()) {
      status = channel->image->Read(block * block_size, static_cast<size_t>(length),
                                    static_cast<uint8_t*>(data));
    }
    if (status.ok()) return 0;
    channel->failure = std::move(status);
    return EXT2_ET_SHORT_READ;
  } catch (...) {
    channel->threw = true;
    return EXT2_ET_NO_MEMORY;
  }
}

errcode_t ReadBlocksShort(io_channel io, unsigned long block, int count, void* data) {
  return ReadBlocks(io, block, count, data);
}

errcode_t Refuse(io_channel, unsigned long, int, const void*) { return EXT2_ET_RO_FILSYS; }
errcode_t Refuse64(io_channel, unsigned long long, int, const void*) { return EXT2_ET_RO_FILSYS; }
errcode_t Flush(io_channel) { return 0; }
errcode_t SetOption(io_channel, const char*, const char*) { return EXT2_ET_INVALID_ARGUMENT; }

struct_io_manager* Manager() {
  static struct_io_manager manager = [] {
    struct_io_manager made{};
    made.magic = EXT2_ET_MAGIC_IO_MANAGER;
    made.name = "image";
    made.open = OpenChannel;
    made.close = CloseChannel;
    made.set_blksize = SetBlockSize;
    made.read_blk = ReadBlocksShort;
    made.read_blk64 = ReadBlocks;
    made.write_blk = Refuse;
    made.write_blk64 = Refuse64;
    made.write_byte = Refuse;
    made.flush = Flush;
    made.set_option = SetOption;
    return made;
  }();
  return &manager;
}

errcode_t OpenChannel(const char* name, int, io_channel* out) {
  io_channel io = nullptr;
  if (const errcode_t error = ext2fs_get_memzero(sizeof *io, &io)) return error;
  const std::string_view text(name);
  if (const errcode_t error = ext2fs_get_memzero(text.size() + 1, &io->name)) {
    ext2fs_free_mem(&io);
    return error;
  }
  std::copy(text.begin(), text.end(), io->name);
  io->magic = EXT2_ET_MAGIC_IO_CHANNEL;
  io->manager = Manager();
  io->block_size = 1024;
  io->refcount = 1;
  io->private_data = opening;
  *out = io;
  return 0;
}

const char* Reason(errcode_t error) {
  switch (error) {
    case EXT2_ET_SB_CSUM_INVALID:
      return "the superblock's checksum does not match";
    case EXT2_ET_UNKNOWN_CSUM:
      return "an unknown kind of checksum";
    case EXT2_ET_CORRUPT_SUPERBLOCK:
      return "the superblock contradicts itself";
    case EXT2_ET_SHORT_READ:
      return "it reaches past the end of the image";
    case EXT2_ET_UNSUPP_FEATURE:
    case EXT2_ET_RO_UNSUPP_FEATURE:
      return "features that this libext2fs does not support";
    case EXT2_ET_BAD_DESC_SIZE:
      return "an invalid size of group descriptors";
    default:
      return "refused";
  }
}

struct Closer {
  void operator()(ext2_filsys fs) const { ext2fs_free(fs); }
};

class ExtCursor final : public ExtentCursor {
 public:
  ExtCursor(std::shared_ptr<const Image> image, ExtGeometry geometry, std::stop_token stop)
      : ExtentCursor({.capacity = image->size(), .granularity = geometry.block_size}),
        image_(std::move(image)),
        geometry_(std::move(geometry)),
        channel_{.image = image_.get(), .stop = std::move(stop), .failure = absl::OkStatus()} {}

  // Call once, before anything else.
  absl::Status Open() {
    ext2_filsys fs = nullptr;
    opening = &channel_;
    const errcode_t error =
        ext2fs_open2("image", nullptr, EXT2_FLAG_64BITS | EXT2_FLAG_SKIP_MMP, 0, 0, Manager(), &fs);
    opening = nullptr;
    if (error == 0) fs_.reset(fs);
    if (channel_.threw || error == EXT2_ET_NO_MEMORY) {
      return absl::ResourceExhaustedError(
          absl::StrCat(image_->label(), ": out of memory while the file system was opened"));
    }
    if (!channel_.failure.ok()) return channel_.failure;
    if (error != 0) {
      const std::string text =
          absl::StrCat(image_->label(), ": the file system can't be opened: ", Reason(error),
                       " (libext2fs error ", error, ")");
      return error == EXT2_ET_UNSUPP_FEATURE || error == EXT2_ET_RO_UNSUPP_FEATURE
                 ? absl::FailedPreconditionError(text)
                 : absl::DataLossError(text);
    }
    // The library parses these itself; a disagreement would be dangerous here.
    if (fs->blocksize != geometry_.block_size || fs->group_desc_count != geometry_.group_count ||
        ext2fs_blocks_count(fs->super) != geometry_.block_count ||
        static_cast<uint32_t>(EXT2FS_CLUSTER_RATIO(fs)) != geometry_.blocks_per_cluster ||
        fs->super->s_blocks_per_group != geometry_.blocks_per_group) {
      return absl::DataLossError(
          absl::StrCat(image_->label(), ": the superblock can be read in two ways"));
    }
    return absl::OkStatus();
  }

 private:
  struct Blocks {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    int groups = 0;
    const uint64_t first = geometry_.first_block * geometry_.block_size;
    while (!batch.full() && position_ < capacity()) {
      if (position_ < first) {
        Report(first, batch);
      } else if (position_ >= geometry_.end()) {
        Report(capacity(), batch);
      } else {
        const uint64_t block = position_ / geometry_.block_size - geometry_.first_block;
        const auto group = static_cast<uint32_t>(block / geometry_.blocks_per_group);
        if (group != loaded_) {
          if (++groups > kGroupsPerCall) break;
          if (absl::Status status = Load(group); !status.ok()) return status;
        }
        Scan(batch);
      }
    }
    if (position_ == capacity()) {
      if (absl::Status status = image_->CheckUnchanged(); !status.ok()) return status;
    }
    return position_;
  }

  void Report(uint64_t end, ExtentBatch& batch) {
    batch.push_back({position_, end - position_});
    position_ = end;
  }

  Blocks BlocksOf(uint32_t group) const noexcept {
    const uint64_t begin = geometry_.first_block + uint64_t{group} * geometry_.blocks_per_group;
    return {begin, std::min(begin + geometry_.blocks_per_group, geometry_.block_count)};
  }

  // The number of clusters in a group; the last one may be shorter.
  size_t ClustersOf(Blocks blocks) const noexcept {
    return static_cast<size_t>(BlockCount(blocks.end - blocks.begin, geometry_.blocks_per_cluster));
  }

  // From position_ to the end of the loaded group, or until the batch is full.
  void Scan(ExtentBatch& batch) {
    const Blocks blocks = BlocksOf(loaded_);
    const size_t clusters = ClustersOf(blocks);
    const auto offset_of = [&](size_t cluster) {
      return std::min(blocks.begin + cluster * uint64_t{geometry_.blocks_per_cluster}, blocks.end) *
             geometry_.block_size;
    };
    auto cluster = static_cast<size_t>((position_ / geometry_.block_size - blocks.begin) /
                                       geometry_.blocks_per_cluster);
    while (!batch.full() && cluster < clusters) {
      const size_t begin = NextBit(cluster, clusters, true);
      cluster = NextBit(begin, clusters, false);
      position_ = std::max(position_, offset_of(begin));
      if (cluster > begin) Report(offset_of(cluster), batch);
    }
  }

  bool Bit(size_t cluster) const noexcept {
    return (bitmap_[cluster / 8] >> (cluster % 8) & 1) != 0;
  }

  // Bits from 64 * index, the first one lowest.
  uint64_t Word(size_t index) const noexcept {
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i) word |= uint64_t{bitmap_[index * 8 + i]} << (8 * i);
    return word;
  }

  // The first cluster in [cluster, clusters) whose bit is `value`.
  size_t NextBit(size_t cluster, size_t clusters, bool value) const noexcept {
    while (cluster < clusters) {
      const uint64_t word = value ? Word(cluster / 64) : ~Word(cluster / 64);
      const uint64_t rest = word >> (cluster % 64);
      if (rest != 0) {
        return std::min(clusters, cluster + static_cast<size_t>(std::countr_zero(rest)));
      }
      cluster += 64 - cluster % 64;
    }
    return clusters;
  }

  // Marks the part of the blocks that lies in `group`.
  void Mark(uint32_t group, Blocks blocks) noexcept {
    const Blocks all = BlocksOf(group);
    const uint64_t begin = std::max(blocks.begin, all.begin);
    const uint64_t end = std::min(blocks.end, all.end);
    if (begin >= end) return;
    const uint64_t last = (end - 1 - all.begin) / geometry_.blocks_per_cluster;
    for (uint64_t cluster = (begin - all.begin) / geometry_.blocks_per_cluster; cluster <= last;
         ++cluster) {
      bitmap_[cluster / 8] = static_cast<uint8_t>(bitmap_[cluster / 8] | 1u << (cluster % 8));
    }
  }

  // True if the bitmap marks the whole part of the blocks that lies in `group`.
  bool Has(uint32_t group, Blocks blocks) const noexcept {
    const Blocks all = BlocksOf(group);
    for (uint64_t block = std::max(blocks.begin, all.begin); block < std::min(blocks.end, all.end);
         ++block) {
      if (!Bit(static_cast<size_t>((block - all.begin) / geometry_.blocks_per_cluster))) {
        return false;
      }
    }
    return true;
  }

  // The bitmaps and inodes of a group, wherever they lie.
  std::array<Blocks, 3> MetadataOf(uint32_t group) const {
    const uint64_t blocks = ext2fs_block_bitmap_loc(fs_.get(), group);
    const uint64_t inodes = ext2fs_inode_bitmap_loc(fs_.get(), group);
    // A location has 64 bits at most, the length 32; the sum may not wrap.
    const uint64_t table =
        std::min<uint64_t>(ext2fs_inode_table_loc(fs_.get(), group), geometry_.block_count);
    return {{{blocks, std::max(blocks, blocks + 1)},
             {inodes, std::max(inodes, inodes + 1)},
             {table, table + fs_->inode_blocks_per_group}}};
  }

  // The copies of the superblock and of the table of descriptors that lie in `group`.
  void MarkCopies(uint32_t group) {
    blk64_t super = 0;
    blk64_t table = 0;
    blk64_t meta = 0;
    ext2fs_super_and_bgd_loc2(fs_.get(), group, &super, &table, &meta, nullptr);
    if (super != 0) Mark(group, {super, super + 1});
    // The boot block and the first superblock, whether groups begin at block 0 or at block 1.
    if (group == 0) Mark(group, {0, BlockCount(kExtProbeBytes, geometry_.block_size)});
    const uint64_t length = geometry_.meta_groups
                                ? geometry_.first_meta_group
                                : fs_->desc_blocks + uint64_t{geometry_.reserved_table_blocks};
    if (table != 0) Mark(group, {table, table + length});
    if (meta != 0) Mark(group, {meta, meta + 1});
  }

  absl::Status Wrong(uint32_t group, uint64_t block, std::string_view what) const {
    return absl::DataLossError(absl::StrCat(image_->label(), ": group ", group,
                                            ", block bitmap at offset ",
                                            block * geometry_.block_size, ": ", std::string(what)));
  }

  // Reads the bitmap of `group`, or constructs it.
  absl::Status Load(uint32_t group) {
    loaded_ = kNoGroup;
    const auto size = static_cast<size_t>(geometry_.clusters_per_group() / 8);
    const uint64_t at = ext2fs_block_bitmap_loc(fs_.get(), group);
    if (geometry_.group_checksums && ext2fs_group_desc_csum_verify(fs_.get(), group) == 0) {
      return absl::DataLossError(absl::StrCat(image_->label(), ": the checksum of the descriptor ",
                                              "of group ", group, " does not match"));
    }
    if (ext2fs_bg_flags_test(fs_.get(), group, EXT2_BG_BLOCK_UNINIT) != 0) {
      bitmap_.assign(static_cast<size_t>(AlignUp(size, 8)), 0);
      MarkWithoutBitmap(group);
    } else {
      if (at < geometry_.first_block || at >= geometry_.block_count) {
        return Wrong(group, at, "that is outside of the file system");
      }
      bitmap_.resize(geometry_.block_size);
      absl::Status status = image_->Read(at * geometry_.block_size, bitmap_.size(), bitmap_.data());
      if (!status.ok()) return status;
      status = CheckBitmap(group, at, size);
      if (!status.ok()) return status;
      MarkCopies(group);
    }
    loaded_ = group;
    return absl::OkStatus();
  }

  // The number of free clusters in `group`.
  size_t CountFree(uint32_t group) const noexcept {
    const size_t clusters = ClustersOf(BlocksOf(group));
    size_t free = 0;
    for (size_t i = 0; i < clusters; i += 64) {
      const uint64_t inside =
          clusters - i < 64 ? (uint64_t{1} << (clusters - i)) - 1 : ~uint64_t{0};
      free += static_cast<size_t>(std::popcount(~Word(i / 64) & inside));
    }
    return free;
  }

  absl::Status CheckBitmap(uint32_t group, uint64_t at, size_t size) {
    if (ext2fs_block_bitmap_csum_verify(fs_.get(), group, reinterpret_cast<char*>(bitmap_.data()),
                                        static_cast<int>(size)) == 0) {
      return Wrong(group, at, "its checksum does not match");
    }
    // Old file systems have no bitmap checksums, but these two checks find most damage. In a clean
    // file system both are exact.
    const size_t free = CountFree(group);
    const uint32_t expected = ext2fs_bg_free_blocks_count(fs_.get(), group);
    if (free != expected) {
      return Wrong(group, at,
                   absl::StrCat("it has ", free, " free clusters, the descriptor says ", expected));
    }
    for (const Blocks& blocks : MetadataOf(group)) {
      if (!Has(group, blocks)) return Wrong(group, at, "it marks the group's own metadata as free");
    }
    return absl::OkStatus();
  }

  // A group in which only metadata was ever allocated: its own, and that of groups which share a
  // flex group.
  void MarkWithoutBitmap(uint32_t group) {
    // The flag counts only where a checksum vouches for it.
    if (!geometry_.group_checksums || geometry_.groups_per_flex > kMaxGroupsPerFlex) {
      Mark(group, BlocksOf(group));
      return;
    }
    const uint32_t begin = group - group % geometry_.groups_per_flex;
    const uint32_t end = begin + std::min(geometry_.groups_per_flex, geometry_.group_count - begin);
    for (uint32_t other = begin; other < end; ++other) {
      for (const Blocks& blocks : MetadataOf(other)) Mark(group, blocks);
    }
    MarkCopies(group);
    // It is unknown what else is in use there, if anything.
    if (CountFree(group) != ext2fs_bg_free_blocks_count(fs_.get(), group)) {
      Mark(group, BlocksOf(group));
    }
  }

  static constexpr uint32_t kNoGroup = UINT32_MAX;

  const std::shared_ptr<const Image> image_;
  const ExtGeometry geometry_;
  Channel channel_;
  std::unique_ptr<struct_ext2_filsys, Closer> fs_;
  std::vector<uint8_t> bitmap_;  // of the group loaded_; whole words
  uint32_t loaded_ = kNoGroup;
  uint64_t position_ = 0;
};

}  // namespace

#endif  // CBT_HAVE_LIBEXT2FS

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtAllocationCursor(
    std::shared_ptr<const Image> image, const ExtOptions& options) {
  if (image == nullptr) return absl::InvalidArgumentError("ext: no image");
#ifdef CBT_HAVE_LIBEXT2FS
  std::array<uint8_t, kExtSuperblockBytes> bytes{};
  absl::Status status = image->Read(kExtSuperblockOffset, bytes.size(), bytes.data());
  if (!status.ok()) return status;
  absl::StatusOr<ExtGeometry> geometry = ReadExtSuperblock(bytes, image->size(), image->label());
  if (!geometry.ok()) return geometry.status();
  if (!geometry->unclean.empty()) {
    if (!options.over_report_unclean) {
      return absl::FailedPreconditionError(absl::StrCat(
          image->label(), ": the file system's bitmaps can't be trusted: ", geometry->unclean));
    }
    return MakeExtentCursor({{0, image->size()}},
                            {.capacity = image->size(), .granularity = geometry->block_size});
  }
  const std::shared_ptr<const Image> checked = image;
  auto cursor = std::make_unique<ExtCursor>(std::move(image), *std::move(geometry), options.stop);
  status = cursor->Open();
  if (!status.ok()) return status;
  if (!options.ignore_other_signatures) {
    status = CheckOnlySignature(*checked,
                                {.name = "ext2, ext3 or ext4",
                                 .types = {"ext2", "ext3", "ext4", "ext4dev"},
                                 .offset = kExtMagicOffset,
                                 .remedy = "if the file system fills the image, say so (--from "
                                           "ext:other-signatures=ignore)"});
    if (!status.ok()) return status;
  }
  // Merges extents across groups.
  return Coalesce(std::move(cursor));
#else
  static_cast<void>(options);
  return absl::UnimplementedError("ext: built without libext2fs");
#endif
}

}  // namespace cbt
