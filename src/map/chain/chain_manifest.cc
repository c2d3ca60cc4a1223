#include "map/chain/chain_manifest.h"

#include <limits>
#include <utility>

#include "cbt/change_map.h"
#include "cbt/cursor.h"

namespace cbt {
namespace {

constexpr ManifestKind kKind = {.magic = {0x89, 'C', 'B', 'C', '\r', '\n', 0x1a, '\n'},
                                .major = 2,
                                .minor = 0,
                                .owner = "chain"};

// Where the time of a snapshot is not known.
constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

ChainEntry ReadEntry(ManifestReader& reader) {
  ChainEntry entry;
  entry.slot = reader.Number<uint64_t>();
  entry.capacity = reader.Number<uint64_t>();
  entry.floor = reader.Number<uint64_t>();
  if (reader.major() >= 2) {
    const auto time = reader.Number<int64_t>();
    if (time != kNoTime) entry.time = time;
  }
  entry.file = reader.File();
  entry.id = reader.Text();
  return entry;
}

}  // namespace

std::vector<uint8_t> EncodeManifest(const ChainManifest& manifest) {
  ManifestWriter writer(kKind);
  writer.Number(manifest.granularity);
  writer.Number(manifest.next_slot);
  writer.Number(manifest.next_file);
  writer.Text(manifest.volume);
  writer.Number(uint64_t{manifest.entries.size()});
  for (const ChainEntry& entry : manifest.entries) {
    writer.Number(entry.slot);
    writer.Number(entry.capacity);
    writer.Number(entry.floor);
    writer.Number(entry.time.value_or(kNoTime));
    writer.File(entry.file);
    writer.Text(entry.id);
  }
  writer.Number(uint64_t{manifest.nodes.size()});
  for (const auto& [node, file] : manifest.nodes) {
    writer.Number(static_cast<uint8_t>(node.first));
    writer.Number(node.second);
    writer.File(file);
  }
  return std::move(writer).Finish();
}

absl::StatusOr<ChainManifest> DecodeManifest(std::span<const uint8_t> bytes,
                                             std::string_view name) {
  absl::StatusOr<ManifestReader> opened = ManifestReader::Open(bytes, kKind, name);
  if (!opened.ok()) return opened.status();
  ManifestReader& reader = *opened;
  const size_t begin = reader.at();
  ChainManifest manifest;
  manifest.granularity = reader.Number<uint64_t>();
  manifest.next_slot = reader.Number<uint64_t>();
  manifest.next_file = reader.Number<uint64_t>();
  manifest.volume = reader.Text();
  constexpr uint64_t kMaxSlots = uint64_t{1} << 60;
  if (!reader.sound() ||
      !CheckGeometry({.capacity = 0, .granularity = manifest.granularity}).ok() ||
      manifest.next_slot > kMaxSlots) {
    return reader.Damaged(begin, "invalid manifest header");
  }
  const auto file_is_known = [&manifest](const ChainFile& file) {
    return file.number != 0 && file.number < manifest.next_file;
  };
  const auto entries = reader.Number<uint64_t>();
  for (uint64_t i = 0; i < entries; ++i) {
    const size_t at = reader.at();
    ChainEntry entry = ReadEntry(reader);
    const bool follows =
        i == 0 ? entry.file.number == 0
               : entry.slot > manifest.entries.back().slot && file_is_known(entry.file);
    if (!reader.sound() || !follows || entry.id.empty() || entry.slot >= manifest.next_slot ||
        entry.capacity > kMaxCapacity || entry.floor > entry.capacity) {
      return reader.Damaged(at, "invalid snapshot entry");
    }
    manifest.entries.push_back(std::move(entry));
  }
  if (manifest.entries.empty()) return reader.Damaged(reader.at(), "the chain has no snapshots");
  const auto nodes = reader.Number<uint64_t>();
  for (uint64_t i = 0; i < nodes; ++i) {
    const size_t at = reader.at();
    const unsigned level = reader.Number<uint8_t>();
    const auto index = reader.Number<uint64_t>();
    const ChainFile file = reader.File();
    if (!reader.sound() || level == 0 || level > kMaxChainLevel ||
        index > manifest.next_slot >> level || !file_is_known(file) ||
        (i > 0 && manifest.nodes.rbegin()->first >= ChainNode(level, index))) {
      return reader.Damaged(at, "invalid union entry");
    }
    manifest.nodes.emplace_hint(manifest.nodes.end(), ChainNode(level, index), file);
  }
  if (!reader.ended()) {
    return reader.Damaged(reader.at(), "trailing bytes");
  }
  return manifest;
}

absl::StatusOr<ChainManifest> ReadChainManifest(const Directory& directory) {
  absl::StatusOr<std::shared_ptr<const MappedFile>> file =
      directory.Map(kChainManifestName, MappedFile::Watched::kNo);
  if (!file.ok()) return file.status();
  return DecodeManifest((*file)->bytes(), directory.Shown(kChainManifestName));
}

}  // namespace cbt
