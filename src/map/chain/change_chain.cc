#include "cbt/change_chain.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/directory.h"
#include "base/file_io.h"
#include "base/text.h"
#include "cbt/change_map_file.h"
#include "map/chain/chain_access.h"
#include "map/chain/chain_manifest.h"
#include "map/map_access.h"
#include "map/map_cursor.h"
#include "map/map_file.h"
#include "map/portable_writer.h"
#include "map/range_writer.h"
#include "map/unchanged_cursor.h"

namespace cbt {
namespace {

constexpr char kMapPrefix[] = "map-";
constexpr char kMapExtension[] = ".cbm";

// The most files kept mapped; the kernel can reclaim pages that are not in use.
constexpr size_t kFilesKept = 64;

// Looks up ids without copying them: a copy could throw where nothing may.
struct IdHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
  size_t operator()(std::string_view id) const noexcept {
    return std::hash<std::string_view>()(id);
  }
};

std::string MapName(uint64_t number) { return absl::StrCat(kMapPrefix, number, kMapExtension); }

// The numbers of the map files that a manifest names, sorted.
std::vector<uint64_t> FilesOf(const ChainManifest& manifest) {
  std::vector<uint64_t> files;
  files.reserve(manifest.entries.size() + manifest.nodes.size());
  for (const ChainEntry& entry : manifest.entries) files.push_back(entry.file.number);
  for (const auto& [node, file] : manifest.nodes) files.push_back(file.number);
  std::sort(files.begin(), files.end());
  return files;
}

class ChainInDirectory final : public ChangeChain {
 public:
  // `claim`: null if open for reading.
  ChainInDirectory(Directory directory, ChainManifest manifest,
                   std::unique_ptr<DirectoryClaim> claim, const ChainOptions& options)
      : directory_(std::move(directory)), options_(options), claim_(std::move(claim)) {
    Places places = PlacesOf(manifest);
    Take(std::move(manifest), std::move(places));
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

  bool Contains(std::string_view id) const noexcept override { return Find(id) != nullptr; }
  std::vector<uint64_t> MapBytes() const override;

  using ChangeChain::Append;
  absl::Status Append(const ChangeMap& map, std::optional<int64_t> time) override;
  absl::Status Remove(std::string_view id) override;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                      std::string_view target) const override;
  absl::Status Verify() const override;

  // Writes the manifest, for Create().
  absl::Status Commit(ChainManifest manifest);
  // Syncs the names in the directory to disk, if options ask for it.
  bool IsSynced() const { return !options_.sync || directory_.Sync().ok(); }
  // Removes files that a crash left.
  void Sweep() const;

 private:
  // Indexes of a manifest's entries by id.
  using Places = std::unordered_map<std::string, size_t, IdHash, std::equal_to<>>;
  static Places PlacesOf(const ChainManifest& manifest);
  void Take(ChainManifest manifest, Places places) noexcept;
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
  absl::Status BuildNode(ChainManifest& manifest, ChainNode node) const;
  std::vector<std::string> LeftBehind(const ChainManifest& before,
                                      const ChainManifest& after) const;

  const Directory directory_;
  const ChainOptions options_;
  const std::unique_ptr<DirectoryClaim> claim_;  // null: open for reading
  ChainManifest manifest_;
  absl::Status unknown_;  // why the state on disk is unknown
  Places places_;

  // Recently opened files, the latest first. What has been checked in them stays checked.
  mutable std::mutex kept_mutex_;
  mutable std::list<std::pair<uint64_t, LazyMap>> kept_;
};

ChainInDirectory::Places ChainInDirectory::PlacesOf(const ChainManifest& manifest) {
  Places places;
  for (size_t i = 0; i < manifest.entries.size(); ++i) places[manifest.entries[i].id] = i;
  return places;
}

const ChainEntry* ChainInDirectory::Find(std::string_view id) const noexcept {
  const auto place = places_.find(id);
  return place == places_.end() ? nullptr : &manifest_.entries[place->second];
}

std::vector<uint64_t> ChainInDirectory::MapBytes() const {
  std::vector<uint64_t> bytes;
  bytes.reserve(manifest_.entries.size());
  for (const ChainEntry& entry : manifest_.entries) {
    struct stat info {};
    const bool known = entry.file.number != 0 &&
                       fstatat(directory_.descriptor(), MapName(entry.file.number).c_str(), &info,
                               AT_SYMLINK_NOFOLLOW) == 0;
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
  Places places = PlacesOf(*there);
  Take(*std::move(there), std::move(places));
  unknown_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status ChainInDirectory::Commit(ChainManifest manifest) {
  // Allocate everything first, so that nothing throws after the manifest is written.
  const std::vector<uint8_t> bytes = EncodeManifest(manifest);
  const std::span<const uint8_t> parts[] = {bytes};
  Places places = PlacesOf(manifest);
  const std::vector<std::string> left = LeftBehind(manifest_, manifest);
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
    places = PlacesOf(*there);
    Take(*std::move(there), std::move(places));
    unknown_ = absl::OkStatus();
    return status;
  }
  Take(std::move(manifest), std::move(places));
  unknown_ = absl::OkStatus();
  // A file that can't be removed is swept later.
  for (const std::string& file : left) directory_.Remove(file.c_str());
  return absl::OkStatus();
}

// The files that are needed before a change but not after it.
std::vector<std::string> ChainInDirectory::LeftBehind(const ChainManifest& before,
                                                      const ChainManifest& after) const {
  const std::vector<uint64_t> had = FilesOf(before);
  const std::vector<uint64_t> needed = FilesOf(after);
  std::vector<uint64_t> gone;
  std::set_difference(had.begin(), had.end(), needed.begin(), needed.end(),
                      std::back_inserter(gone));
  std::vector<std::string> left;
  left.reserve(gone.size());
  for (const uint64_t number : gone) left.push_back(MapName(number));
  return left;
}

void ChainInDirectory::Take(ChainManifest manifest, Places places) noexcept {
  manifest_ = std::move(manifest);
  places_ = std::move(places);
}

void ChainInDirectory::Sweep() const {
  std::set<std::string> needed;
  for (const uint64_t number : FilesOf(manifest_)) needed.insert(MapName(number));
  const absl::StatusOr<std::vector<std::string>> names = directory_.List();
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const bool partial = absl::StartsWith(name, ".") &&
                         absl::EndsWith(name, AbslView(kPartialExtension)) &&
                         (absl::StartsWith(name, absl::StrCat(".", kMapPrefix)) ||
                          absl::StartsWith(name, absl::StrCat(".", kChainManifestName)));
    const bool map = absl::StartsWith(name, kMapPrefix) && absl::EndsWith(name, kMapExtension);
    if (partial || (map && !needed.contains(name))) directory_.Remove(name.c_str());
  }
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
  const std::string name = directory_.Shown(MapName(file.number));
  absl::StatusOr<std::shared_ptr<const MappedFile>> mapped =
      directory_.Map(MapName(file.number), MappedFile::Watched::kYes);
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
      WriteMapIn(directory_, MapName(number), *united, options_.sync);
  if (!header.ok()) return header.status();
  return ChainFile{number, header->checksum};
}

// Builds a node from the maps in its slots, if there is more than one.
absl::Status ChainInDirectory::BuildNode(ChainManifest& manifest, ChainNode node) const {
  const auto [level, index] = node;
  manifest.nodes.erase(node);
  const uint64_t begin = index << level;
  const uint64_t end = (index + 1) << level;
  // No delta begins before the oldest snapshot.
  if (begin <= manifest.entries.front().slot) return absl::OkStatus();
  const std::vector<ChainFile> files = Pieces(manifest, begin, end, level);
  if (files.size() < 2) return absl::OkStatus();
  absl::StatusOr<std::optional<ChainFile>> file =
      WriteUnion(manifest, files, {manifest.volume, {}, {}}, manifest.next_file++,
                 std::min(options_.max_union_bytes, kMaxMapBytes));
  if (!file.ok()) return file.status();
  // Maps whose union is too large must not fail Append(): a retry would find the same slots. Deltas
  // do without the node.
  if (file->has_value()) manifest.nodes[node] = **file;
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
  ChainManifest next = manifest_;
  ChainEntry entry{.id = identity.target,
                   .slot = next.next_slot++,
                   .capacity = map->capacity(),
                   .floor = map->capacity(),
                   .file = {.number = next.next_file++, .checksum = 0},
                   .time = time};
  absl::StatusOr<ChangeMapHeader> header =
      WriteMapIn(directory_, MapName(entry.file.number), aligned, options_.sync);
  if (!header.ok()) return header.status();
  entry.file.checksum = header->checksum;
  const uint64_t end = entry.slot + 1;
  next.entries.push_back(std::move(entry));
  for (unsigned level = 1; level <= kMaxChainLevel && end % (uint64_t{1} << level) == 0; ++level) {
    absl::Status status = BuildNode(next, {level, (end >> level) - 1});
    if (!status.ok()) return status;
  }
  return Commit(std::move(next));
}

absl::Status ChainInDirectory::Remove(std::string_view id) {
  if (absl::Status status = BeginChange(); !status.ok()) return status;
  const auto place = places_.find(id);
  if (place == places_.end()) {
    return absl::NotFoundError(absl::StrCat("the chain has no snapshot \"", AbslView(id), "\""));
  }
  if (manifest_.entries.size() == 1) {
    return absl::FailedPreconditionError("the only snapshot of a chain can't be removed");
  }
  const size_t at = place->second;
  ChainManifest next = manifest_;
  const ChainEntry removed = next.entries[at];
  next.entries.erase(next.entries.begin() + static_cast<std::ptrdiff_t>(at));
  const auto erase_nodes = [&next](auto wrong) {
    std::erase_if(next.nodes, [&](const auto& node) {
      const uint64_t begin = node.first.second << node.first.first;
      return wrong(begin, begin + (uint64_t{1} << node.first.first));
    });
  };
  if (at == 0) {
    // Its map to the next snapshot is dropped too; no delta begins below that any more.
    ChainEntry& oldest = next.entries.front();
    oldest.file = {};
    oldest.floor = oldest.capacity;
    erase_nodes([&](uint64_t begin, uint64_t) { return begin <= oldest.slot; });
  } else if (at == next.entries.size()) {
    // Also drop the slots of removed snapshots whose maps had become part of its map.
    const uint64_t newest = next.entries.back().slot;
    erase_nodes([&](uint64_t, uint64_t end) { return end > newest + 1; });
  } else {
    ChainEntry& after = next.entries[at];
    const ChangeMapIdentity identity{next.volume, next.entries[at - 1].id, after.id};
    absl::StatusOr<std::optional<ChainFile>> united =
        WriteUnion(next, {removed.file, after.file}, identity, next.next_file++, kMaxMapBytes);
    if (!united.ok()) return united.status();
    if (!united->has_value()) return PortableWriter::TooLarge();
    after.file = **united;
    after.floor = std::min(after.floor, removed.floor);
    // Nodes that include the next slot but not this one lack the map that was added to it.
    std::vector<ChainNode> stale;
    for (const auto& [node, file] : next.nodes) {
      const uint64_t begin = node.second << node.first;
      const uint64_t end = begin + (uint64_t{1} << node.first);
      if (begin <= after.slot && after.slot < end && removed.slot < begin) stale.push_back(node);
    }
    for (const ChainNode& node : stale) next.nodes.erase(node);
    // In ascending order of levels: each node is built from lower ones.
    for (const ChainNode& node : stale) {
      if (absl::Status status = BuildNode(next, node); !status.ok()) return status;
    }
  }
  return Commit(std::move(next));
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
  auto chain = std::make_unique<ChainInDirectory>(directory, manifest, *std::move(claim), options);
  if (absl::Status status = chain->Commit(std::move(manifest)); !status.ok()) return status;
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
