// The files of a subvolume while a send stream is played: what they are called, and what changes.
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
  // One that the stream made: empty at first.
  BtrfsFile() : size_(0) {}
  // One of the base, where it has the path `origin`. What it holds is not known.
  explicit BtrfsFile(std::string origin) : in_base_(true), origin_(std::move(origin)) {}

  bool in_base() const noexcept { return in_base_; }
  const std::string& origin() const noexcept { return origin_; }

  // The stream has called it by a name that is known here.
  bool named = false;

  // True when its contents or its size were touched.
  bool touched() const noexcept { return touched_; }
  // The size in bytes, where the stream tells it.
  std::optional<uint64_t> size() const noexcept { return size_; }
  // Where the last byte that was written ends.
  uint64_t furthest() const noexcept { return furthest_; }

  // Bytes of memory that its changes took on since the last call.
  uint64_t TakeGrowth() noexcept { return std::exchange(growth_, 0); }

  // Notes that `extent` changed; `keep`: its place too. `geometry`: of the maps that are built on
  // the way; the extent lies in it.
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
  uint64_t smallest_ = UINT64_MAX;  // size that it was cut to
  std::vector<Extent> recent_;
  std::optional<ChangeMapBuilder> builder_;
  uint64_t growth_ = 0;
};

// All names that a stream has mentioned. Errors are texts without a place: the caller knows it.
class BtrfsFiles {
 public:
  // `full`: there is no base, so that every file is one that the stream makes.
  // `wanted`: the only file of the base whose changes must be kept; none: any may be asked for.
  BtrfsFiles(bool full, std::optional<std::string> wanted, const VolumeGeometry& geometry);

  // The commands of a stream. `path` is never empty but for Mention().
  // Errors: DATA_LOSS for what can't follow from what was before, RESOURCE_EXHAUSTED.
  absl::Status MakeFile(std::string_view path);
  absl::Status MakeOther(std::string_view path);
  absl::Status Rename(std::string_view from, std::string_view to);
  absl::Status Link(std::string_view path, std::string_view existing);
  absl::Status Remove(std::string_view path);
  absl::Status Mention(std::string_view path);
  absl::Status Change(std::string_view path, Extent extent, bool extends);
  absl::Status Truncate(std::string_view path, uint64_t size);

  // What is at `path` now.
  struct Found {
    // False when the stream made it; else it had the path `origin` in the base.
    bool in_base = false;
    std::string origin = {};
    // What changed; null when the stream has said nothing of its contents.
    BtrfsFile* file = nullptr;
    // The stream has named it, and not only what is above it: it is there.
    bool proven = false;
  };
  // Errors: NOT_FOUND, INVALID_ARGUMENT when it is no file.
  absl::StatusOr<Found> Find(std::string_view path);

  // The names of files that are there now and were made or touched, one for each, at most `most`
  // of them, sorted.
  std::vector<std::string> Touched(size_t most) const;

  // True when a file of the base other than `file` was touched.
  bool OthersTouched(const BtrfsFile* file) const noexcept;

  const VolumeGeometry& geometry() const noexcept { return geometry_; }

 private:
  enum class Kind : uint8_t {
    kBase,   // was in the base, under `origin`
    kFile,   // the stream made it
    kOther,  // the stream made it and it is no regular file; or nobody knows what it is
    kGone,   // there is nothing any more
  };

  struct Node {
    Kind kind = Kind::kBase;
    uint32_t parent = 0;
    std::string origin = {};
    std::map<std::string, uint32_t, std::less<>> children = {};
    BtrfsFile* file = nullptr;
    bool renamed = false;  // itself, not only with a folder above it
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
  // Indexes instead of pointers, so that no chain of names, however long, is taken down by
  // recursion.
  std::vector<Node> nodes_;
  std::deque<BtrfsFile> files_;
  uint64_t memory_ = 0;
};

}  // namespace cbt

#endif  // CBT_SOURCE_BTRFS_BTRFS_FILES_H_
