#include "source/btrfs/btrfs_files.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "source/btrfs/btrfs_stream.h"

namespace cbt {
namespace {

constexpr uint64_t kMaxMemory = 512 * kMiB;

// Extents of a file that are kept as they are; a file with more gets a builder.
constexpr size_t kRecentKept = 512;
// The initial memory of a builder, roughly: 65536 ranges.
constexpr uint64_t kBuilderBytes = 2 * kMiB;

// The size of a range in a map: its ends, and the header of every container.
constexpr uint64_t kRunBytes = 4;
constexpr uint64_t kContainerBytes = 16;

constexpr uint32_t kTop = 0;

absl::Status Impossible(std::string_view what, std::string_view path) {
  return absl::DataLossError(absl::StrCat(AbslView(what), ": ", AbslView(path)));
}

// The directory and the name of a path.
std::pair<std::string_view, std::string_view> SplitPath(std::string_view path) noexcept {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {std::string_view(), path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

std::string Join(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return absl::StrCat(AbslView(directory), "/", AbslView(name));
}

// Calls `use` with every name of `path`, from the root, until it returns false.
template <typename Use>
void ForEachName(std::string_view path, Use use) {
  while (!path.empty()) {
    const size_t slash = path.find('/');
    if (!use(path.substr(0, slash))) return;
    if (slash == std::string_view::npos) return;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

absl::Status BtrfsFile::Change(Extent extent, bool extends, bool keep,
                               const VolumeGeometry& geometry) {
  touched_ = true;
  if (extent.length == 0) return absl::OkStatus();
  if (extends) {
    furthest_ = std::max(furthest_, extent.end());
    if (size_.has_value()) size_ = std::max(*size_, extent.end());
  }
  if (!keep) return absl::OkStatus();
  if (!recent_.empty() && recent_.back().offset <= extent.offset &&
      extent.offset <= recent_.back().end()) {
    Extent& last = recent_.back();
    last.length = std::max(last.end(), extent.end()) - last.offset;
    return absl::OkStatus();
  }
  if (recent_.size() == kRecentKept) {
    if (absl::Status status = Flush(geometry); !status.ok()) return status;
  }
  if (recent_.capacity() == recent_.size()) growth_ += (recent_.size() + 1) * sizeof(Extent);
  recent_.push_back(extent);
  return absl::OkStatus();
}

void BtrfsFile::Truncate(uint64_t size) noexcept {
  touched_ = true;
  size_ = size;
  smallest_ = std::min(smallest_, size);
}

absl::Status BtrfsFile::Flush(const VolumeGeometry& geometry) {
  if (!builder_.has_value()) {
    absl::StatusOr<ChangeMapBuilder> builder = ChangeMapBuilder::Create(geometry);
    if (!builder.ok()) return builder.status();
    builder_.emplace(*std::move(builder));
    growth_ += kBuilderBytes;
  }
  for (const Extent& extent : recent_) {
    if (absl::Status status = builder_->Add(extent); !status.ok()) return status;
    // A run, and the containers of 65536 blocks that it spans.
    growth_ += kRunBytes + extent.length / geometry.granularity / 65536 * kContainerBytes;
  }
  recent_.clear();
  return absl::OkStatus();
}

absl::StatusOr<ChangeMap> BtrfsFile::Build(uint64_t capacity, const VolumeGeometry& geometry) {
  if (smallest_ < capacity) {
    // Truncated there and grown again: zeros, whatever the base holds.
    recent_.push_back({smallest_, capacity - smallest_});
  }
  if (absl::Status status = Flush(geometry); !status.ok()) return status;
  const absl::StatusOr<ChangeMap> map = builder_->Build();
  if (!map.ok()) return map.status();
  return WithCapacity(*map, capacity);
}

BtrfsFiles::BtrfsFiles(bool full, std::optional<std::string> wanted, const VolumeGeometry& geometry)
    : full_(full), wanted_(std::move(wanted)), geometry_(geometry) {
  nodes_.push_back({.kind = full ? Kind::kOther : Kind::kBase});
}

absl::Status BtrfsFiles::Charge(uint64_t bytes) {
  memory_ += bytes;
  if (memory_ <= kMaxMemory) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the names and changes of all files so far take more than ", kMaxMemory, " bytes of memory"));
}

absl::StatusOr<uint32_t> BtrfsFiles::Add(uint32_t parent, std::string_view name, Node node) {
  // Plus the rough overhead of the containers.
  const uint64_t bytes = sizeof(Node) + 96 + name.size() + node.origin.size();
  if (absl::Status status = Charge(bytes); !status.ok()) return status;
  const auto index = static_cast<uint32_t>(nodes_.size());
  node.parent = parent;
  nodes_.push_back(std::move(node));
  nodes_[parent].children.insert_or_assign(std::string(name), index);
  return index;
}

absl::StatusOr<uint32_t> BtrfsFiles::Obtain(std::string_view path) {
  uint32_t at = kTop;
  absl::Status failure;
  ForEachName(path, [&](std::string_view name) {
    const Node& node = nodes_[at];
    if (const auto child = node.children.find(name); child != node.children.end()) {
      at = child->second;
      return true;
    }
    // Anything may exist below a directory of the base. What the stream creates is empty at first.
    Node next{.kind = Kind::kGone};
    if (node.kind == Kind::kBase) next = {.kind = Kind::kBase, .origin = Join(node.origin, name)};
    const absl::StatusOr<uint32_t> added = Add(at, name, std::move(next));
    if (added.ok()) at = *added;
    failure = added.status();
    return failure.ok();
  });
  if (!failure.ok()) return failure;
  return at;
}

absl::Status BtrfsFiles::Make(std::string_view path, Node node) {
  const auto [directory, name] = SplitPath(path);
  const absl::StatusOr<uint32_t> parent = Obtain(directory);
  if (!parent.ok()) return parent.status();
  return Add(*parent, name, std::move(node)).status();
}

absl::Status BtrfsFiles::MakeFile(std::string_view path) {
  if (absl::Status status = Charge(sizeof(BtrfsFile)); !status.ok()) return status;
  files_.emplace_back();
  files_.back().named = true;
  return Make(path, {.kind = Kind::kFile, .file = &files_.back()});
}

absl::Status BtrfsFiles::MakeOther(std::string_view path) {
  return Make(path, {.kind = Kind::kOther});
}

absl::Status BtrfsFiles::Remove(std::string_view path) {
  // A marker, so that the name is not resolved to the base's file again.
  return Make(path, {.kind = Kind::kGone});
}

absl::Status BtrfsFiles::Rename(std::string_view from, std::string_view to) {
  const absl::StatusOr<uint32_t> moved = Obtain(from);
  if (!moved.ok()) return moved.status();
  if (nodes_[*moved].kind == Kind::kGone)
    return Impossible("renames a path that does not exist", from);
  nodes_[*moved].renamed = true;
  if (from == to) return absl::OkStatus();
  const auto [directory, name] = SplitPath(to);
  const absl::StatusOr<uint32_t> parent = Obtain(directory);
  if (!parent.ok()) return parent.status();
  // At most as many steps as `to` has names.
  for (uint32_t at = *parent;; at = nodes_[at].parent) {
    if (at == *moved) return Impossible("moves a directory into itself", from);
    if (at == kTop) break;
  }
  if (absl::Status status = Remove(from); !status.ok()) return status;
  if (absl::Status status = Charge(96 + name.size()); !status.ok()) return status;
  nodes_[*parent].children.insert_or_assign(std::string(name), *moved);
  nodes_[*moved].parent = *parent;
  return absl::OkStatus();
}

absl::Status BtrfsFiles::Link(std::string_view path, std::string_view existing) {
  const absl::StatusOr<uint32_t> node = Obtain(existing);
  if (!node.ok()) return node.status();
  if (nodes_[*node].kind == Kind::kGone)
    return Impossible("links a path that does not exist", existing);
  if (nodes_[*node].kind == Kind::kBase) {
    // So that both names refer to one file.
    if (absl::StatusOr<BtrfsFile*> file = FileAt(existing); !file.ok()) return file.status();
  }
  Node copy{.kind = nodes_[*node].kind, .origin = nodes_[*node].origin, .file = nodes_[*node].file};
  return Make(path, std::move(copy));
}

absl::StatusOr<BtrfsFile*> BtrfsFiles::FileAt(std::string_view path) {
  const absl::StatusOr<uint32_t> index = Obtain(path);
  if (!index.ok()) return index.status();
  Node& node = nodes_[*index];
  if (node.file == nullptr) {
    if (node.kind != Kind::kBase) return Impossible("there is no such file", path);
    absl::Status status = Charge(sizeof(BtrfsFile) + node.origin.size());
    if (!status.ok()) return status;
    files_.emplace_back(node.origin);
    node.file = &files_.back();
  }
  return node.file;
}

absl::Status BtrfsFiles::Mention(std::string_view path) {
  const absl::StatusOr<uint32_t> index = Obtain(path);
  if (!index.ok()) return index.status();
  const Node& node = nodes_[*index];
  if (path.empty() || (node.file == nullptr && node.kind != Kind::kBase)) return absl::OkStatus();
  const absl::StatusOr<BtrfsFile*> file = FileAt(path);
  if (!file.ok()) return file.status();
  (*file)->named = true;
  return absl::OkStatus();
}

absl::Status BtrfsFiles::Change(std::string_view path, Extent extent, bool extends) {
  const absl::StatusOr<BtrfsFile*> file = FileAt(path);
  if (!file.ok()) return file.status();
  (*file)->named = true;
  if (!extends) {
    // Blocks may be allocated past the end of a file, as far as the file system likes.
    extent.offset = std::min(extent.offset, geometry_.capacity);
    extent.length = std::min(extent.length, geometry_.capacity - extent.offset);
  }
  if (extent.length > geometry_.capacity || extent.offset > geometry_.capacity - extent.length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a change of ", extent.length, " bytes at offset ", extent.offset,
                     " is past the largest file that is expected, ", geometry_.capacity,
                     " bytes: give the capacity, or a coarser granularity"));
  }
  // Without a base there is no wanted file; what replaced the base's file changed everywhere.
  const bool keep =
      full_ || !wanted_.has_value() || ((*file)->in_base() && (*file)->origin() == *wanted_);
  absl::Status status = (*file)->Change(extent, extends, keep, geometry_);
  if (!status.ok()) return status;
  return Charge((*file)->TakeGrowth());
}

absl::Status BtrfsFiles::Truncate(std::string_view path, uint64_t size) {
  const absl::StatusOr<BtrfsFile*> file = FileAt(path);
  if (!file.ok()) return file.status();
  (*file)->named = true;
  if (size > geometry_.capacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("a size of ", size, " bytes is past the largest that is expected, ",
                     geometry_.capacity, ": give the capacity, or a coarser granularity"));
  }
  (*file)->Truncate(size);
  return absl::OkStatus();
}

absl::StatusOr<BtrfsFiles::Found> BtrfsFiles::Find(std::string_view path) {
  const absl::StatusOr<uint32_t> index = Obtain(path);
  if (!index.ok()) return index.status();
  const Node& node = nodes_[*index];
  const absl::Status other =
      absl::InvalidArgumentError(absl::StrCat(AbslView(path), " is not a regular file"));
  switch (node.kind) {
    case Kind::kBase:
      // It has a child, possibly a removed one: a directory, which is not reported as a file.
      if (!node.children.empty()) return other;
      return Found{true, node.origin, node.file, node.file != nullptr || node.renamed};
    case Kind::kFile:
      return Found{false, {}, node.file, true};
    case Kind::kOther:
      return other;
    case Kind::kGone:
      break;
  }
  return absl::NotFoundError(absl::StrCat("there is no ", AbslView(path), " in the target"));
}

std::string BtrfsFiles::PathOf(uint32_t index) const {
  std::string path;
  while (index != kTop && path.size() <= kMaxBtrfsPathBytes) {
    const uint32_t parent = nodes_[index].parent;
    for (const auto& [name, child] : nodes_[parent].children) {
      if (child == index) path = path.empty() ? name : Join(name, path);
    }
    index = parent;
  }
  return path;
}

std::vector<std::string> BtrfsFiles::Touched(size_t most) const {
  // Directories moved into each other can be nested deeper than any path is long, so names are
  // built only for what is returned.
  std::map<const BtrfsFile*, uint32_t> found;
  std::vector<uint32_t> waiting = {kTop};
  while (!waiting.empty() && found.size() < most) {
    const uint32_t index = waiting.back();
    waiting.pop_back();
    const BtrfsFile* const file = nodes_[index].file;
    if (file != nullptr && (file->touched() || !file->in_base())) {
      found.emplace(file, index);
    }
    // In reverse, so that they are popped in order.
    const auto& children = nodes_[index].children;
    std::transform(children.rbegin(), children.rend(), std::back_inserter(waiting),
                   [](const auto& child) { return child.second; });
  }
  std::vector<std::string> names;
  names.reserve(found.size());
  for (const auto& [file, index] : found) names.push_back(PathOf(index));
  std::sort(names.begin(), names.end());
  return names;
}

bool BtrfsFiles::OthersTouched(const BtrfsFile* file) const noexcept {
  return std::any_of(files_.begin(), files_.end(), [file](const BtrfsFile& other) {
    return &other != file && other.in_base() && other.touched();
  });
}

}  // namespace cbt
