// The names and changes of a subvolume's files while a send stream is applied.
#ifndef CBT_SOURCE_BTRFS_BTRFS_FILES_H_
#define CBT_SOURCE_BTRFS_BTRFS_FILES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/extent.h"

namespace cbt {

// The changes of one file, in the order of the stream.
class BtrfsFile {
 public:
  // A file that the stream created: empty at first.
  BtrfsFile() : size_(0) {}
  // A file of the base, at the path `origin` there. Its contents are unknown.
  explicit BtrfsFile(std::string origin) : in_base_(true), origin_(std::move(origin)) {}

  bool in_base() const noexcept { return in_base_; }
  const std::string& origin() const noexcept { return origin_; }

  // The stream has referred to it by a known name.
  bool named = false;

  // True if its contents or its size were changed.
  bool touched() const noexcept { return touched_; }
  // The size in bytes, if the stream gives it.
  std::optional<uint64_t> size() const noexcept { return size_; }
  // The end of the furthest change that extends the file.
  uint64_t furthest() const noexcept { return furthest_; }

  // Bytes of memory that its changes have taken since the last call.
  uint64_t TakeGrowth() noexcept { return std::exchange(growth_, 0); }

  // Records that `extent` changed, and its place too if `keep`. It makes the file longer only if it
  // `extends`. `geometry`: of intermediate maps; the extent lies inside.
  absl::Status Change(Extent extent, bool extends, bool keep, const VolumeGeometry& geometry);
  void Truncate(uint64_t size) noexcept;

  // The changes as a map of a file of `capacity` bytes.
  absl::StatusOr<ChangeMap> Build(uint64_t capacity, const VolumeGeometry& geometry);

 private:
  absl::Status Flush(const VolumeGeometry& geometry);

  const bool in_base_ = false;
  const std::string origin_;
  bool touched_ = false;
  std::optional<uint64_t> size_;
  uint64_t furthest_ = 0;
  uint64_t smallest_ = UINT64_MAX;  // smallest size that it was truncated to
  std::vector<Extent> recent_;
  std::optional<ChangeMapBuilder> builder_;
  uint64_t growth_ = 0;
};

// All names in a stream. Error messages lack the position, which the caller knows.
class BtrfsFiles {
 public:
  // `full`: there is no base, so the stream creates every file.
  // `wanted`: the only file of the base whose changes must be kept; if empty, keeps all.
  BtrfsFiles(bool full, std::optional<std::string> wanted, const VolumeGeometry& geometry);

  // The commands of a stream. `path` is never empty except for Mention().
  // Errors: DATA_LOSS for a command that can't follow from the earlier ones, RESOURCE_EXHAUSTED.
  absl::Status MakeFile(std::string_view path);
  absl::Status MakeOther(std::string_view path);
  absl::Status Rename(std::string_view from, std::string_view to);
  absl::Status Link(std::string_view path, std::string_view existing);
  absl::Status Remove(std::string_view path);
  absl::Status Mention(std::string_view path);
  absl::Status Change(std::string_view path, Extent extent, bool extends);
  absl::Status Truncate(std::string_view path, uint64_t size);

  // The file now at `path`.
  struct Found {
    // False if the stream created it; otherwise it had the path `origin` in the base.
    bool in_base = false;
    std::string origin = {};
    // Its changes; null if the stream does not mention its contents.
    BtrfsFile* file = nullptr;
    // The stream names it, and not only a directory above it: it exists.
    bool proven = false;
  };
  // Errors: NOT_FOUND, INVALID_ARGUMENT if it is not a regular file.
  absl::StatusOr<Found> Find(std::string_view path);

  // The names of existing files that were created or changed, one for each, at most `most` of them,
  // sorted.
  std::vector<std::string> Touched(size_t most) const;

  // True if a file of the base other than `file` was changed.
  bool OthersTouched(const BtrfsFile* file) const noexcept;

  const VolumeGeometry& geometry() const noexcept { return geometry_; }

 private:
  enum class Kind : uint8_t {
    kBase,   // was in the base, under `origin`
    kFile,   // created by the stream
    kOther,  // created by the stream as something else than a regular file; or unknown
    kGone,   // no longer exists
  };

  struct Node {
    Kind kind = Kind::kBase;
    uint32_t parent = 0;
    std::string origin = {};
    std::map<std::string, uint32_t, std::less<>> children = {};
    BtrfsFile* file = nullptr;
    bool renamed = false;  // itself, not only a directory above it
  };

  absl::StatusOr<uint32_t> Add(uint32_t parent, std::string_view name, Node node);
  absl::StatusOr<uint32_t> Obtain(std::string_view path);
  absl::StatusOr<BtrfsFile*> FileAt(std::string_view path);
  absl::Status Make(std::string_view path, Node node);
  absl::Status Charge(uint64_t bytes);
  std::string PathOf(uint32_t index) const;

  const bool full_;
  const std::optional<std::string> wanted_;
  const VolumeGeometry geometry_;
  // Indexes instead of pointers, so that long chains of names are not destroyed recursively.
  std::vector<Node> nodes_;
  std::deque<BtrfsFile> files_;
  uint64_t memory_ = 0;
};

}  // namespace cbt

#endif  // CBT_SOURCE_BTRFS_BTRFS_FILES_H_
