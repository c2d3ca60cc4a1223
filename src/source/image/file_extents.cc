#include "source/image/file_extents.h"

#include <linux/btrfs.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt {
namespace {

// Missing in some versions of linux/magic.h.
constexpr uint64_t kXfsMagic = 0x58465342;

// With any other flag, known or not, an address says nothing about the bytes. SHARED means nothing
// either way: it comes and goes with unrelated clones.
constexpr uint32_t kHarmlessFlags =
    FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_UNWRITTEN | FIEMAP_EXTENT_MERGED | FIEMAP_EXTENT_SHARED;

class FiemapLister final : public ExtentLister {
 public:
  explicit FiemapLister(std::shared_ptr<const Image> image) : image_(std::move(image)) {}

  absl::StatusOr<size_t> List(uint64_t begin, uint64_t end,
                              std::span<FileExtent> out) const override {
    const size_t count = std::min(out.size(), kExtentsPerCall);
    // Words, for alignment.
    std::vector<uint64_t> memory(
        (sizeof(fiemap) + count * sizeof(fiemap_extent) + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    auto* const request = reinterpret_cast<fiemap*>(memory.data());
    for (;;) {
      request->fm_start = begin;
      request->fm_length = end - begin;
      request->fm_flags = FIEMAP_FLAG_SYNC;
      request->fm_extent_count = static_cast<uint32_t>(count);
      if (::ioctl(image_->descriptor(), FS_IOC_FIEMAP, request) == 0) break;
      if (errno != EINTR) return Failure(begin, errno);
    }
    const size_t mapped = request->fm_mapped_extents;
    if (mapped > count) {
      return absl::DataLossError(absl::StrCat("fiemap: ", image_->label(), ": ", mapped,
                                              " extents at offset ", begin, " where ", count,
                                              " were asked for"));
    }
    const fiemap_extent* const extents = request->fm_extents;
    for (size_t i = 0; i < mapped; ++i) {
      out[i] = {extents[i].fe_logical, extents[i].fe_physical, extents[i].fe_length,
                extents[i].fe_flags};
    }
    return mapped;
  }

 private:
  absl::Status Failure(uint64_t begin, int error) const {
    const std::string text =
        absl::StrCat("fiemap: ", image_->label(), ": at offset ", begin, ": ", ErrnoText(error));
    switch (error) {
      case EOPNOTSUPP:
      case ENOTTY:
      case ENOSYS:
      case EBADR:  // knows the call, but not FIEMAP_FLAG_SYNC
        return absl::UnimplementedError(text);
      default:
        return absl::UnavailableError(text);
    }
  }

  const std::shared_ptr<const Image> image_;
};

bool Wraps(uint64_t offset, uint64_t length) noexcept { return length > UINT64_MAX - offset; }

// Appends [begin, end), merged with the last piece if possible.
void Append(std::vector<Placement>& pieces, const Placement& piece) {
  if (piece.begin == piece.end) return;
  if (!pieces.empty()) {
    Placement& last = pieces.back();
    const bool goes_on =
        piece.kind == last.kind && (piece.kind != Placement::Kind::kKnown ||
                                    piece.physical - last.physical == last.end - last.begin);
    if (goes_on) {
      last.end = piece.end;
      return;
    }
  }
  pieces.push_back(piece);
}

Placement::Kind KindOf(const FileExtent& extent) noexcept {
  if ((extent.flags & ~kHarmlessFlags) != 0) return Placement::Kind::kUnknown;
  // Zeros wherever they are stored, so the address does not matter.
  if ((extent.flags & FIEMAP_EXTENT_UNWRITTEN) != 0) return Placement::Kind::kZeros;
  // No file system stores data in its first bytes: the address was not filled in.
  if (extent.physical == 0) return Placement::Kind::kUnknown;
  return Placement::Kind::kKnown;
}

absl::Status CheckExtent(const FileExtent& extent, std::string_view label, uint64_t begin,
                         uint64_t previous_end) {
  const char* wrong = nullptr;
  if (extent.length == 0) {
    wrong = "has no length";
  } else if (Wraps(extent.logical, extent.length)) {
    wrong = "reaches past the largest offset";
  } else if (Wraps(extent.physical, extent.length)) {
    wrong = "lies past the largest address";
  } else if (extent.logical < previous_end) {
    wrong = "begins before the end of the previous one";
  } else if (extent.logical + extent.length <= begin) {
    wrong = "ends before what was asked for";
  }
  if (wrong == nullptr) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("extents: ", AbslView(label), ": the extent at offset ",
                                          extent.logical, ", length ", extent.length, ", ", wrong,
                                          " (asked from offset ", begin, ")"));
}

struct FileSystem {
  uint64_t magic = 0;
  struct stat stat = {};
};

std::optional<FileSystem> FileSystemOf(const Image& image) {
  FileSystem system;
  struct statfs statfs;
  if (::fstatfs(image.descriptor(), &statfs) != 0) return std::nullopt;
  if (::fstat(image.descriptor(), &system.stat) != 0) return std::nullopt;
  // Sign extension of a narrower field would corrupt btrfs's.
  system.magic = static_cast<uint32_t>(statfs.f_type);
  return system;
}

// On XFS the realtime device has addresses of its own.
std::optional<bool> IsRealtime(const Image& image) {
  fsxattr attributes = {};
  if (::ioctl(image.descriptor(), FS_IOC_FSGETXATTR, &attributes) != 0) return std::nullopt;
  return (attributes.fsx_xflags & FS_XFLAG_REALTIME) != 0;
}

using FsId = std::array<uint8_t, BTRFS_FSID_SIZE>;

// The same in all subvolumes, which differ in st_dev and f_fsid. Differs for a second device with
// the same on-disk identity: the kernel refuses to mount it or assigns a temporary one.
std::optional<FsId> BtrfsId(const Image& image) {
  btrfs_ioctl_fs_info_args info = {};
  if (::ioctl(image.descriptor(), BTRFS_IOC_FS_INFO, &info) != 0) return std::nullopt;
  FsId id;
  std::memcpy(id.data(), info.fsid, id.size());
  return id;
}

}  // namespace

std::shared_ptr<const ExtentLister> MakeFiemapLister(std::shared_ptr<const Image> image) {
  return std::make_shared<FiemapLister>(std::move(image));
}

absl::StatusOr<PlacementList> ReadPlacement(const ExtentLister& lister, std::string_view label,
                                            uint64_t size, uint64_t begin, uint64_t end) {
  PlacementList list;
  if (begin >= size) {
    list.pieces.push_back({begin, end, Placement::Kind::kZeros, 0});
    return list;
  }
  const uint64_t limit = std::min(end, size);
  std::vector<FileExtent> extents(kExtentsPerCall);
  const absl::StatusOr<size_t> count = lister.List(begin, limit, extents);
  if (!count.ok()) return count.status();
  if (*count > extents.size()) {
    return absl::DataLossError(absl::StrCat("extents: ", AbslView(label), ": ", *count,
                                            " extents at offset ", begin, " where ", extents.size(),
                                            " were asked for"));
  }
  extents.resize(*count);
  uint64_t position = begin;
  uint64_t previous_end = 0;
  for (const FileExtent& extent : extents) {
    absl::Status status = CheckExtent(extent, label, begin, previous_end);
    if (!status.ok()) return status;
    if ((extent.flags & FIEMAP_EXTENT_LAST) != 0 && &extent != &extents.back()) {
      return absl::DataLossError(absl::StrCat("extents: ", AbslView(label),
                                              ": the extent at offset ", extent.logical,
                                              " is marked as the last one but is not"));
    }
    previous_end = extent.logical + extent.length;
    if (position == limit) continue;  // past the requested range: only checked
    const uint64_t from = std::clamp(extent.logical, position, limit);
    const uint64_t to = std::min(previous_end, limit);
    Append(list.pieces, {position, from, Placement::Kind::kZeros, 0});
    const Placement::Kind kind = KindOf(extent);
    const bool known = kind == Placement::Kind::kKnown;
    if (from < to) {
      Append(list.pieces, {from, to, kind, known ? extent.physical + (from - extent.logical) : 0});
    }
    position = std::max(from, to);
  }
  // Only an empty answer means that there are no more extents.
  if (extents.empty()) {
    Append(list.pieces, {position, limit, Placement::Kind::kZeros, 0});
    position = limit;
  }
  if (position == limit) Append(list.pieces, {limit, end, Placement::Kind::kZeros, 0});
  return list;
}

PlacementList CutPlacement(const PlacementList& list, uint64_t end) {
  PlacementList cut;
  for (Placement piece : list.pieces) {
    if (piece.begin >= end) break;
    piece.end = std::min(piece.end, end);
    cut.pieces.push_back(piece);
  }
  return cut;
}

bool HasReliableExtents(const Image& image) {
  const std::optional<FileSystem> system = FileSystemOf(image);
  return system.has_value() && S_ISREG(system->stat.st_mode) &&
         (system->magic == kXfsMagic || system->magic == BTRFS_SUPER_MAGIC ||
          system->magic == EXT4_SUPER_MAGIC);
}

absl::Status CheckSharedPlacement(const Image& base, const Image& target) {
  const auto refuse = [&](const char* why) {
    return absl::FailedPreconditionError(
        absl::StrCat("placement: ", base.label(), ", ", target.label(), ": ", why));
  };
  const std::optional<FileSystem> a = FileSystemOf(base);
  const std::optional<FileSystem> b = FileSystemOf(target);
  if (!a.has_value() || !b.has_value()) return refuse("can't determine the file systems");
  if (!S_ISREG(a->stat.st_mode) || !S_ISREG(b->stat.st_mode)) {
    return refuse("only regular files have extents");
  }
  if (a->magic != b->magic) return refuse("they are on different file systems");
  if (a->magic == kXfsMagic) {
    // Not the on-disk identity: a block snapshot of an XFS, mounted with nouuid, has the same one,
    // and the same addresses for what has been overwritten since.
    if (a->stat.st_dev != b->stat.st_dev) return refuse("they are on different file systems");
    const std::optional<bool> base_realtime = IsRealtime(base);
    const std::optional<bool> target_realtime = IsRealtime(target);
    if (!base_realtime.has_value() || !target_realtime.has_value()) {
      return refuse("can't determine which device of the file system they are on");
    }
    if (*base_realtime != *target_realtime) {
      return refuse("one is on the realtime device of the file system");
    }
    return absl::OkStatus();
  }
  if (a->magic == BTRFS_SUPER_MAGIC) {
    if (a->stat.st_dev == b->stat.st_dev) return absl::OkStatus();
    const std::optional<FsId> base_id = BtrfsId(base);
    if (!base_id.has_value() || base_id != BtrfsId(target)) {
      return refuse("they can't be shown to be on one file system");
    }
    return absl::OkStatus();
  }
  return refuse("the file system is neither XFS nor btrfs: its addresses prove nothing here");
}

}  // namespace cbt
