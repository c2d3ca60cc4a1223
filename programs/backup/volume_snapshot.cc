#include "programs/backup/volume_snapshot.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/percent.h"
#include "base/text.h"
#include "repository/tree.h"

namespace cbt::backup {
namespace {

constexpr size_t kMaxNameBytes = 200;
constexpr size_t kMinPrefix = 4;

std::optional<uint64_t> NumberTag(const repository::Snapshot& snapshot, std::string_view name) {
  const std::optional<std::string> text = snapshot.Tag(name);
  if (!text.has_value()) return std::nullopt;
  const absl::StatusOr<uint64_t> number = ParseNumber(*text, INT64_MAX);
  if (!number.ok()) return std::nullopt;
  return *number;
}

}  // namespace

absl::Status CheckVolumeName(std::string_view name) {
  bool good = !name.empty() && name != "." && name != ".." && name.size() <= kMaxNameBytes &&
              IsUtf8(name) && name.find('@') == std::string_view::npos;
  for (const char c : name) {
    good &= static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && c != '/' && c != '\\' && c != '"';
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("VOLUME: ", JsonString(name),
                   " can't name a volume: expected up to 200 bytes of UTF-8 without slashes, "
                   "backslashes, quotes, @ and control characters"));
}

std::vector<std::string> TagsOf(const VolumeSnapshot& snapshot) {
  std::vector<std::string> tags{"cbt"};
  if (snapshot.handle.has_value()) {
    // restic separates tags by commas.
    tags.push_back("cbt.handle=" + PercentEncode(*snapshot.handle, PercentPlain::kUnreserved));
  }
  if (snapshot.capacity.has_value())
    tags.push_back(absl::StrCat("cbt.capacity=", *snapshot.capacity));
  if (snapshot.blob_bytes.has_value()) {
    tags.push_back(absl::StrCat("cbt.blob=", *snapshot.blob_bytes));
  }
  if (!snapshot.tier.empty()) tags.push_back("cbt.tier=" + snapshot.tier);
  return tags;
}

std::optional<VolumeSnapshot> AsVolumeSnapshot(const repository::Snapshot& snapshot) {
  if (snapshot.paths.size() != 1) return std::nullopt;
  const std::string& path = snapshot.paths.front();
  if (!path.starts_with('/') || !CheckVolumeName(std::string_view(path).substr(1)).ok()) {
    return std::nullopt;
  }
  VolumeSnapshot found{.snapshot = snapshot, .volume = path.substr(1)};
  found.ours = snapshot.HasTag("cbt");
  if (!found.ours) return found;
  if (const std::optional<std::string> handle = snapshot.Tag("cbt.handle")) {
    found.handle = PercentDecode(*handle, BrokenEscapes::kRefused);
  }
  found.capacity = NumberTag(snapshot, "cbt.capacity");
  found.blob_bytes = NumberTag(snapshot, "cbt.blob");
  found.tier = snapshot.Tag("cbt.tier").value_or("");
  return found;
}

absl::StatusOr<std::vector<VolumeSnapshot>> FindVolumeSnapshots(repository::Repository& repository,
                                                                std::string_view volume) {
  const absl::StatusOr<std::vector<repository::Snapshot>> all = repository.Snapshots();
  if (!all.ok()) return all.status();
  std::vector<VolumeSnapshot> found;
  for (const repository::Snapshot& snapshot : *all) {
    std::optional<VolumeSnapshot> one = AsVolumeSnapshot(snapshot);
    if (one.has_value() && (volume.empty() || one->volume == volume)) {
      found.push_back(*std::move(one));
    }
  }
  return found;
}

absl::StatusOr<VolumeSnapshot> FindVolumeSnapshot(repository::Repository& repository,
                                                  const std::string& volume,
                                                  const std::string& which) {
  absl::StatusOr<std::vector<VolumeSnapshot>> all = FindVolumeSnapshots(repository, volume);
  if (!all.ok()) return all.status();
  if (all->empty()) {
    return absl::NotFoundError(
        absl::StrCat(repository.name(), ": has no snapshot of the volume ", volume));
  }
  // cppcheck-suppress returnStdMoveLocal  // no local
  if (which.empty() || which == "latest") return std::move(all->back());
  VolumeSnapshot* found = nullptr;
  for (VolumeSnapshot& one : *all) {
    const bool by_id = which.size() >= kMinPrefix && one.snapshot.id.Hex().starts_with(which);
    if (!by_id && one.handle != which) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(which, ": names both ",
                                                     found->snapshot.id.Short(), " and ",
                                                     one.snapshot.id.Short(), " of ", volume));
    }
    found = &one;
  }
  if (found != nullptr) return std::move(*found);
  return absl::NotFoundError(
      absl::StrCat(repository.name(), ": has no snapshot ", which, " of the volume ", volume));
}

bool VolumeContent::IsCutAt(uint64_t bytes) const {
  for (size_t i = 0; i < blobs.size(); ++i) {
    if (offsets[i] != i * bytes) return false;
  }
  return blobs.empty() || LengthOf(blobs.size() - 1) <= bytes;
}

absl::StatusOr<VolumeContent> LoadContent(repository::Repository& repository,
                                          const VolumeSnapshot& snapshot) {
  using repository::BlobType;
  VolumeContent content;
  bool found = false;
  {
    const absl::StatusOr<std::vector<uint8_t>> tree =
        repository.LoadBlob(BlobType::kTree, snapshot.snapshot.tree);
    if (!tree.ok()) return tree.status();
    const absl::Status decoded =
        repository::DecodeTree({reinterpret_cast<const char*>(tree->data()), tree->size()},
                               kMaxVolumeBlobs, [&](repository::TreeNode& node) {
                                 if (node.name == snapshot.volume && node.type == "file") {
                                   found = true;
                                   content.size = node.size;
                                   content.blobs = std::move(node.content);
                                 }
                                 return absl::OkStatus();
                               });
    if (!decoded.ok()) {
      return repository::Of(absl::StrCat("tree of snapshot ", snapshot.snapshot.id.Short()),
                            decoded);
    }
  }
  const std::string name =
      absl::StrCat("snapshot ", snapshot.snapshot.id.Short(), " of ", snapshot.volume);
  if (!found) return absl::NotFoundError(absl::StrCat(name, ": its tree has no such file"));
  content.offsets.reserve(content.blobs.size() + 1);
  uint64_t at = 0;
  for (const repository::Id& id : content.blobs) {
    const std::optional<repository::PackedBlob> blob = repository.Find(BlobType::kData, id);
    if (!blob.has_value()) {
      return absl::NotFoundError(absl::StrCat(name, ": the repository lacks its blob ", id.Short(),
                                              " at ", at, " bytes; see `restic check`"));
    }
    content.offsets.push_back(at);
    at += blob->size();
  }
  content.offsets.push_back(at);
  if (at != content.size) {
    return absl::DataLossError(
        absl::StrCat(name, ": has ", content.size, " bytes, but its blobs ", at));
  }
  return content;
}

}  // namespace cbt::backup
