#include "cbt/change_chain.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/directory.h"
#include "base/file_io.h"
#include "base/text.h"
#include "cbt/change_map_file.h"
#include "map/chain/chain_access.h"
#include "map/chain/chain_files.h"
#include "map/chain/chain_manifest.h"
#include "map/chain/manifest_edit.h"
#include "map/map_access.h"
#include "map/map_cursor.h"
#include "map/map_file.h"
#include "map/portable_writer.h"
#include "map/range_writer.h"
#include "map/unchanged_cursor.h"

namespace cbt {
namespace {

// The most files kept mapped; the kernel can reclaim pages that are not in use.
constexpr size_t kFilesKept = 64;

// Looks up ids without copying them: a copy could throw where nothing may.
struct IdHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
  size_t operator()(std::string_view id) const noexcept {
    return std::hash<std::string_view>()(id);
  }
};

class ChainInDirectory final : public ChangeChain {
 public:
  // `claim`: null if open for reading.
  ChainInDirectory(Directory directory, ChainManifest manifest,
                   std::unique_ptr<DirectoryClaim> claim, const ChainOptions& options)
      : directory_(std::move(directory)), options_(options), claim_(std::move(claim)) {
    Slots slots = SlotsOf(manifest);
    Take(std::move(manifest), std::move(slots));
  }

  const std::string& volume() const noexcept override { return manifest_.volume; }
  uint64_t granularity() const noexcept override { return manifest_.granularity; }

  std::vector<ChainSnapshot> snapshots() const override {
    std::vector<ChainSnapshot> snapshots;
    for (const ChainEntry& entry : manifest_.entries) {
      snapshots.push_back({entry.id, entry.capacity, entry.time});
    }
    return snapshots;
  }
  ChainSnapshot newest() const override {
    const ChainEntry& entry = manifest_.entries.back();
    return {entry.id, entry.capacity, entry.time};
  }

  bool Contains(std::string_view id) const noexcept override { return Find(id) != nullptr; }
  std::vector<uint64_t> MapBytes() const override;

  using ChangeChain::Append;
  absl::Status Append(const ChangeMap& map, std::optional<int64_t> time) override;
  absl::Status Remove(std::string_view id) override;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                      std::string_view target) const override;
  absl::Status Verify() const override;

  // Writes the manifest, for Create().
  absl::Status Commit() {
    ManifestEdit nothing(manifest_);
    return Commit(nothing);
  }
  // Syncs the names in the directory to disk, if options ask for it.
  bool IsSynced() const { return !options_.sync || directory_.Sync().ok(); }
  // Removes files that a crash left.
  void Sweep() const { SweepChainFiles(directory_, manifest_); }

 private:
  // The slots of a manifest's entries by id.
  using Slots = std::unordered_map<std::string, uint64_t, IdHash, std::equal_to<>>;
  static Slots SlotsOf(const ChainManifest& manifest);
  void Take(ChainManifest manifest, Slots slots) noexcept;
  const ChainEntry* Find(std::string_view id) const noexcept;
  absl::Status CheckReadable() const;
  absl::Status BeginChange();

  static std::vector<ChainFile> Pieces(const ChainManifest& manifest, uint64_t begin, uint64_t end,
                                       unsigned below);
  absl::StatusOr<LazyMap> OpenFile(const ChainFile& file, uint64_t granularity) const;
  absl::StatusOr<LazyMap> OpenOrKept(const ChainFile& file, uint64_t granularity) const;
  absl::StatusOr<std::optional<ChainFile>> WriteUnion(const ChainManifest& manifest,
                                                      const std::vector<ChainFile>& files,
                                                      const ChangeMapIdentity& identity,
                                                      uint64_t number, uint64_t most) const;
  absl::Status BuildNode(ManifestEdit& edit, ChainNode node) const;
  absl::Status Remove(ManifestEdit& edit, size_t at) const;
  absl::Status Commit(ManifestEdit& edit);

  const Directory directory_;
  const ChainOptions options_;
  const std::unique_ptr<DirectoryClaim> claim_;  // null: open for reading
  ChainManifest manifest_;
  absl::Status unknown_;  // why the state on disk is unknown
  Slots slots_;

  // Recently opened files, the latest first. What has been checked in them stays checked.
  mutable std::mutex kept_mutex_;
  mutable std::list<std::pair<uint64_t, LazyMap>> kept_;
};

ChainInDirectory::Slots ChainInDirectory::SlotsOf(const ChainManifest& manifest) {
  Slots slots;
  slots.reserve(manifest.entries.size());
  for (const ChainEntry& entry : manifest.entries) slots[entry.id] = entry.slot;
  return slots;
}

const ChainEntry* ChainInDirectory::Find(std::string_view id) const noexcept {
  const auto slot = slots_.find(id);
  return slot == slots_.end() ? nullptr : &manifest_.entries[PlaceOf(manifest_, slot->second)];
}

std::vector<uint64_t> ChainInDirectory::MapBytes() const {
  std::vector<uint64_t> bytes;
  bytes.reserve(manifest_.entries.size());
  for (const ChainEntry& entry : manifest_.entries) {
    struct stat info {};
    const bool known = entry.file.number != 0 &&
                       fstatat(directory_.descriptor(), ChainMapName(entry.file.number).c_str(),
                               &info, AT_SYMLINK_NOFOLLOW) == 0;
    bytes.push_back(known ? static_cast<uint64_t>(info.st_size) : 0);
  }
  return bytes;
}

// In a forked child, the state of a chain that is open for changes may be outdated.
absl::Status ChainInDirectory::CheckReadable() const {
  return claim_ == nullptr || claim_->IsOurs() ? absl::OkStatus()
                                               : CopiedByFork(directory_.shown());
}

// OK if a change may begin.
absl::Status ChainInDirectory::BeginChange() {
  if (claim_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_.shown(), ": the chain is open read-only"));
  }
  if (absl::Status status = claim_->Check(); !status.ok()) return status;
  if (unknown_.ok()) return absl::OkStatus();
  // What kept the last change from looking may be over.
  absl::StatusOr<ChainManifest> there = ReadChainManifest(directory_);
  if (!there.ok()) return unknown_;
  Slots slots = SlotsOf(*there);
  Take(*std::move(there), std::move(slots));
  unknown_ = absl::OkStatus();
  return absl::OkStatus();
}

// Writes the manifest as it has been edited. `edit` is undone unless that is on disk.
absl::Status ChainInDirectory::Commit(ManifestEdit& edit) {
  // Allocate everything first, so that nothing throws after the manifest is written.
  const std::vector<uint8_t> bytes = EncodeManifest(manifest_);
  const std::span<const uint8_t> parts[] = {bytes};
  std::vector<std::string> left;
  left.reserve(edit.dropped().size());
  for (const ChainFile& file : edit.dropped()) left.push_back(ChainMapName(file.number));
  // What is on disk counts: file numbers that it names must not be reused. While that is unknown,
  // also because of an exception, no change is allowed; the next one looks again.
  unknown_ = absl::InternalError(
      absl::StrCat(directory_.shown(),
                   ": a change was interrupted by an exception, and the manifest can't be read"));
  absl::Status status = directory_.Write(kChainManifestName, parts, options_.sync);
  if (!status.ok()) {
    // The new manifest may be in place nevertheless.
    absl::StatusOr<ChainManifest> there = ReadChainManifest(directory_);
    if (!there.ok()) {
      unknown_ = there.status();
      return status;
    }
    Slots slots = SlotsOf(*there);
    edit.Keep();
    Take(*std::move(there), std::move(slots));
    unknown_ = absl::OkStatus();
    return status;
  }
  edit.Keep();
  unknown_ = absl::OkStatus();
  // A file that can't be removed is swept later.
  for (const std::string& file : left) directory_.Remove(file.c_str());
  return absl::OkStatus();
}

void ChainInDirectory::Take(ChainManifest manifest, Slots slots) noexcept {
  manifest_ = std::move(manifest);
  slots_ = std::move(slots);
}

// The smallest set of files whose union is that of the slots [begin, end), using nodes of levels
// under `below`.
std::vector<ChainFile> ChainInDirectory::Pieces(const ChainManifest& manifest, uint64_t begin,
                                                uint64_t end, unsigned below) {
  std::vector<ChainFile> files;
  auto entry = std::lower_bound(
      manifest.entries.begin(), manifest.entries.end(), begin,
      [](const ChainEntry& candidate, uint64_t slot) { return candidate.slot < slot; });
  for (uint64_t slot = begin; slot < end;) {
    // The largest node that begins here and fits into the rest.
    unsigned level = slot == 0 ? kMaxChainLevel : static_cast<unsigned>(std::countr_zero(slot));
    level = std::min(
        {level, static_cast<unsigned>(std::bit_width(end - slot)) - 1, kMaxChainLevel, below - 1});
    auto node = manifest.nodes.end();
    for (; level > 0 && node == manifest.nodes.end(); --level) {
      node = manifest.nodes.find({level, slot >> level});
      if (node != manifest.nodes.end()) break;
    }
    while (entry != manifest.entries.end() && entry->slot < slot) ++entry;
    if (node != manifest.nodes.end()) {
      files.push_back(node->second);
      slot += uint64_t{1} << level;
    } else if (entry != manifest.entries.end() && entry->slot == slot) {
      files.push_back(entry->file);
      ++slot;
    } else {
      // The snapshot was removed: the next slot has its map.
      slot = entry == manifest.entries.end() ? end : std::min(entry->slot, end);
    }
  }
  return files;
}

absl::StatusOr<LazyMap> ChainInDirectory::OpenFile(const ChainFile& file,
                                                   uint64_t granularity) const {
  const std::string name = directory_.Shown(ChainMapName(file.number));
  absl::StatusOr<std::shared_ptr<const MappedFile>> mapped =
      directory_.Map(ChainMapName(file.number), MappedFile::Watched::kYes);
  if (absl::IsNotFound(mapped.status())) {
    return absl::AbortedError(
        absl::StrCat(name, ": is missing (damaged chain, or changed since it was opened)"));
  }
  if (!mapped.ok()) return mapped.status();
  const std::span<const uint8_t> bytes = (*mapped)->bytes();
  absl::StatusOr<LazyMap> map = OpenLazily(bytes, *std::move(mapped), name);
  // The manifest says that it is a map, of the version that was written with it.
  if (absl::IsInvalidArgument(map.status()) || absl::IsUnimplemented(map.status())) {
    return absl::DataLossError(map.status().message());
  }
  if (!map.ok()) return map.status();
  if (map->header.checksum != file.checksum || map->header.geometry.granularity != granularity) {
    return absl::DataLossError(absl::StrCat(name, ": is not the file that the manifest names"));
  }
  return map;
}

absl::StatusOr<LazyMap> ChainInDirectory::OpenOrKept(const ChainFile& file,
                                                     uint64_t granularity) const {
  {
    const std::lock_guard<std::mutex> lock(kept_mutex_);
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
      if (kept->first != file.number) continue;
      kept_.splice(kept_.begin(), kept_, kept);
      return kept->second;
    }
  }
  absl::StatusOr<LazyMap> map = OpenFile(file, granularity);
  if (!map.ok()) return map.status();
  const std::lock_guard<std::mutex> lock(kept_mutex_);
  kept_.emplace_front(file.number, *map);
  if (kept_.size() > kFilesKept) kept_.pop_back();
  return map;
}

// Returns nullopt if the union would have more than `most` bytes.
absl::StatusOr<std::optional<ChainFile>> ChainInDirectory::WriteUnion(
    const ChainManifest& manifest, const std::vector<ChainFile>& files,
    const ChangeMapIdentity& identity, uint64_t number, uint64_t most) const {
  // Check that each file is the chain's own before it becomes part of a new one.
  std::vector<LazyMap> maps;
  std::vector<std::shared_ptr<const PortableIndex>> indexes;
  VolumeGeometry geometry{0, manifest.granularity};
  for (const ChainFile& file : files) {
    absl::StatusOr<LazyMap> map = OpenFile(file, manifest.granularity);
    if (!map.ok()) return map.status();
    geometry.capacity = std::max(geometry.capacity, map->header.geometry.capacity);
    indexes.push_back(map->index);
    maps.push_back(*std::move(map));
  }
  absl::StatusOr<ChangeMap> united = UniteBlocks(std::move(indexes), geometry, most);
  // Handled here, because a full disk has the same code.
  if (absl::IsResourceExhausted(united.status())) return std::nullopt;
  if (!united.ok()) return united.status();
  // A mix of old and new bytes would otherwise get a valid checksum.
  for (const LazyMap& map : maps) {
    if (absl::Status status = map.storage->CheckUnchanged(); !status.ok()) return status;
  }
  united->set_identity(identity);
  absl::StatusOr<ChangeMapHeader> header =
      WriteMapIn(directory_, ChainMapName(number), *united, options_.sync);
  if (!header.ok()) return header.status();
  return ChainFile{number, header->checksum};
}

// Builds a node from the maps in its slots, if there is more than one.
absl::Status ChainInDirectory::BuildNode(ManifestEdit& edit, ChainNode node) const {
  const ChainManifest& manifest = edit.manifest();
  const auto [level, index] = node;
  edit.EraseNode(node);
  const uint64_t begin = index << level;
  const uint64_t end = (index + 1) << level;
  // No delta begins before the oldest snapshot.
  if (begin <= manifest.entries.front().slot) return absl::OkStatus();
  const std::vector<ChainFile> files = Pieces(manifest, begin, end, level);
  if (files.size() < 2) return absl::OkStatus();
  absl::StatusOr<std::optional<ChainFile>> file =
      WriteUnion(manifest, files, {manifest.volume, {}, {}}, edit.NewFile(),
                 std::min(options_.max_union_bytes, kMaxMapBytes));
  if (!file.ok()) return file.status();
  // Maps whose union is too large must not fail Append(): a retry would find the same slots. Deltas
  // do without the node.
  if (file->has_value()) edit.AddNode(node, **file);
  return absl::OkStatus();
}

absl::Status ChainInDirectory::Append(const ChangeMap& map, std::optional<int64_t> time) {
  if (absl::Status status = BeginChange(); !status.ok()) return status;
  const ChangeMapIdentity& identity = map.identity();
  if (absl::Status status = CheckIdentity(identity); !status.ok()) return status;
  const ChainEntry& newest = manifest_.entries.back();
  if (identity.volume != manifest_.volume) {
    return absl::InvalidArgumentError(absl::StrCat("the map is for volume \"", identity.volume,
                                                   "\", the chain for \"", manifest_.volume, "\""));
  }
  if (identity.target.empty()) {
    return absl::InvalidArgumentError("the map does not name its target");
  }
  if (identity.base != newest.id) {
    return absl::FailedPreconditionError(absl::StrCat("the map's base is \"", identity.base,
                                                      "\", the chain's newest snapshot is \"",
                                                      newest.id, "\""));
  }
  if (Contains(identity.target)) {
    return absl::AlreadyExistsError(
        absl::StrCat("the chain already has a snapshot \"", identity.target, "\""));
  }
  ChangeMap aligned = map;
  if (map->granularity() != manifest_.granularity) {
    absl::StatusOr<ChangeMap> rounded = WithGranularity(map, manifest_.granularity);
    if (!rounded.ok()) return rounded.status();
    aligned = *std::move(rounded);
    aligned.set_identity(identity);
  }
  ManifestEdit edit(manifest_);
  ChainEntry entry{.id = identity.target,
                   .slot = edit.NewSlot(),
                   .capacity = map->capacity(),
                   .floor = map->capacity(),
                   .file = {.number = edit.NewFile(), .checksum = 0},
                   .time = time};
  absl::StatusOr<ChangeMapHeader> header =
      WriteMapIn(directory_, ChainMapName(entry.file.number), aligned, options_.sync);
  if (!header.ok()) return header.status();
  entry.file.checksum = header->checksum;
  const uint64_t end = entry.slot + 1;
  slots_.emplace(entry.id, entry.slot);
  const absl::Cleanup forget = [this, &edit, &id = identity.target] {
    if (!edit.kept()) slots_.erase(id);
  };
  edit.Append(std::move(entry));
  for (unsigned level = 1; level <= kMaxChainLevel && end % (uint64_t{1} << level) == 0; ++level) {
    absl::Status status = BuildNode(edit, {level, (end >> level) - 1});
    if (!status.ok()) return status;
  }
  return Commit(edit);
}

absl::Status ChainInDirectory::Remove(std::string_view id) {
  if (absl::Status status = BeginChange(); !status.ok()) return status;
  const auto slot = slots_.find(id);
  if (slot == slots_.end()) {
    return absl::NotFoundError(absl::StrCat("the chain has no snapshot \"", AbslView(id), "\""));
  }
  if (manifest_.entries.size() == 1) {
    return absl::FailedPreconditionError("the only snapshot of a chain can't be removed");
  }
  ManifestEdit edit(manifest_);
  if (absl::Status status = Remove(edit, PlaceOf(manifest_, slot->second)); !status.ok()) {
    return status;
  }
  if (absl::Status status = Commit(edit); !status.ok()) return status;
  slots_.erase(slot);
  return absl::OkStatus();
}

absl::Status ChainInDirectory::Remove(ManifestEdit& edit, size_t at) const {
  const ChainEntry removed = manifest_.entries[at];
  edit.Erase(at);
  const auto erase_nodes = [&](auto wrong) {
    std::vector<ChainNode> nodes;
    for (const auto& [node, file] : manifest_.nodes) {
      const uint64_t begin = node.second << node.first;
      if (wrong(begin, begin + (uint64_t{1} << node.first))) nodes.push_back(node);
    }
    for (const ChainNode& node : nodes) edit.EraseNode(node);
  };
  if (at == 0) {
    // Its map to the next snapshot is dropped too; no delta begins below that any more.
    ChainEntry oldest = manifest_.entries.front();
    oldest.file = {};
    oldest.floor = oldest.capacity;
    edit.Replace(0, std::move(oldest));
    const uint64_t from = manifest_.entries.front().slot;
    erase_nodes([&](uint64_t begin, uint64_t) { return begin <= from; });
    return absl::OkStatus();
  }
  if (at == manifest_.entries.size()) {
    // Also drop the slots of removed snapshots whose maps had become part of its map.
    const uint64_t newest = manifest_.entries.back().slot;
    erase_nodes([&](uint64_t, uint64_t end) { return end > newest + 1; });
    return absl::OkStatus();
  }
  ChainEntry after = manifest_.entries[at];
  const ChangeMapIdentity identity{manifest_.volume, manifest_.entries[at - 1].id, after.id};
  absl::StatusOr<std::optional<ChainFile>> united =
      WriteUnion(manifest_, {removed.file, after.file}, identity, edit.NewFile(), kMaxMapBytes);
  if (!united.ok()) return united.status();
  if (!united->has_value()) return PortableWriter::TooLarge();
  after.file = **united;
  after.floor = std::min(after.floor, removed.floor);
  const uint64_t slot = after.slot;
  edit.Replace(at, std::move(after));
  // Nodes that include the next slot but not this one lack the map that was added to it.
  std::vector<ChainNode> stale;
  for (unsigned level = 1; level <= kMaxChainLevel; ++level) {
    const ChainNode node{level, slot >> level};
    if (removed.slot < node.second << level && manifest_.nodes.contains(node)) {
      stale.push_back(node);
    }
  }
  for (const ChainNode& node : stale) edit.EraseNode(node);
  // In ascending order of levels: each node is built from lower ones.
  for (const ChainNode& node : stale) {
    if (absl::Status status = BuildNode(edit, node); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> ChainInDirectory::Delta(
    std::string_view base, std::string_view target) const {
  if (absl::Status status = CheckReadable(); !status.ok()) return status;
  const ChainEntry* const from = Find(base);
  const ChainEntry* const to = Find(target);
  for (const auto& [entry, id] : {std::pair(from, base), {to, target}}) {
    if (entry == nullptr) {
      return absl::NotFoundError(absl::StrCat("the chain has no snapshot \"", AbslView(id), "\""));
    }
  }
  if (from->slot > to->slot) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot \"", from->id, "\" is newer than \"", to->id, "\""));
  }
  const VolumeGeometry geometry{to->capacity, manifest_.granularity};
  std::vector<std::shared_ptr<const PortableIndex>> maps;
  std::vector<std::shared_ptr<const MappedFile>> opened;
  for (const ChainFile& file :
       Pieces(manifest_, from->slot + 1, to->slot + 1, kMaxChainLevel + 1)) {
    absl::StatusOr<LazyMap> map = OpenOrKept(file, manifest_.granularity);
    if (!map.ok()) return map.status();
    maps.push_back(std::move(map->index));
    opened.push_back(std::move(map->storage));
  }
  // A range that was cut off and regained has changed, whatever the maps say.
  uint64_t floor = from->capacity;
  for (const ChainEntry* entry = from + 1; entry <= to; ++entry) {
    floor = std::min(floor, entry->floor);
  }
  const uint64_t lost_end = std::min(from->capacity, to->capacity);
  if (floor < lost_end) {
    RangeWriter writer;
    absl::Status status =
        writer.Add(floor / geometry.granularity, BlockCount(lost_end, geometry.granularity));
    if (!status.ok()) return status;
    absl::StatusOr<ChangeMap> lost = ChangeMapAccess::FromWriter(writer.Finish(), geometry);
    if (!lost.ok()) return lost.status();
    maps.push_back(ChangeMapAccess::Index(*lost));
  }
  return WhileUnchanged(MakeContainerCursor(std::move(maps), geometry), std::move(opened));
}

absl::Status ChainInDirectory::Verify() const {
  if (absl::Status status = CheckReadable(); !status.ok()) return status;
  const auto check = [&](const ChainFile& file) {
    if (file.number == 0) return absl::OkStatus();
    absl::StatusOr<LazyMap> map = OpenFile(file, manifest_.granularity);
    if (absl::IsAborted(map.status())) return absl::DataLossError(map.status().message());
    if (!map.ok()) return map.status();
    for (size_t i = 0; i < map->index->size(); ++i) {
      absl::StatusOr<Container> container = map->index->Load(i);
      if (!container.ok()) return container.status();
    }
    return absl::OkStatus();
  };
  for (const ChainEntry& entry : manifest_.entries) {
    if (absl::Status status = check(entry.file); !status.ok()) return status;
  }
  for (const auto& [node, file] : manifest_.nodes) {
    if (absl::Status status = check(file); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChangeChain>> CreateChainIn(const Directory& directory,
                                                           const std::string& volume,
                                                           uint64_t granularity,
                                                           const ChainSnapshot& first,
                                                           const ChainOptions& options) {
  absl::StatusOr<std::unique_ptr<DirectoryClaim>> claim = DirectoryClaim::Take(directory);
  if (!claim.ok()) return claim.status();
  const absl::StatusOr<bool> there = directory.Has(kChainManifestName);
  if (!there.ok()) return there.status();
  if (*there) {
    return absl::AlreadyExistsError(absl::StrCat(directory.shown(), ": already contains a chain"));
  }
  ChainManifest manifest{.volume = volume,
                         .granularity = granularity,
                         .next_slot = 1,
                         .next_file = 1,
                         .entries = {{.id = first.id,
                                      .slot = 0,
                                      .capacity = first.capacity,
                                      .floor = first.capacity,
                                      .file = {},
                                      .time = first.time}},
                         .nodes = {}};
  auto chain = std::make_unique<ChainInDirectory>(directory, std::move(manifest), *std::move(claim),
                                                  options);
  if (absl::Status status = chain->Commit(); !status.ok()) return status;
  return chain;
}

absl::StatusOr<std::unique_ptr<ChangeChain>> OpenChainIn(const Directory& directory,
                                                         ChangeChain::Access access,
                                                         const ChainOptions& options) {
  const absl::StatusOr<bool> there = directory.Has(kChainManifestName);
  if (!there.ok()) return there.status();
  if (!*there) return NoChain(directory.shown());
  std::unique_ptr<DirectoryClaim> claim;
  if (access == ChangeChain::Access::kChange) {
    absl::StatusOr<std::unique_ptr<DirectoryClaim>> taken = DirectoryClaim::Take(directory);
    if (!taken.ok()) return taken.status();
    claim = *std::move(taken);
  }
  absl::StatusOr<ChainManifest> manifest = ReadChainManifest(directory);
  if (!manifest.ok()) return manifest.status();
  auto chain = std::make_unique<ChainInDirectory>(directory, *std::move(manifest), std::move(claim),
                                                  options);
  // A killed process may have renamed the manifest without syncing its name. Sync before removing
  // files that the previous manifest needs: a power loss could bring that manifest back.
  if (access == ChangeChain::Access::kChange && chain->IsSynced()) chain->Sweep();
  return chain;
}

}  // namespace cbt
