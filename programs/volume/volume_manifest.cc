#include "programs/volume/volume_manifest.h"

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/manifest_bytes.h"
#include "cbt/cursor.h"

namespace cbt::volume {
namespace {

constexpr ManifestKind kVolumeKind = {.magic = {0x89, 'C', 'B', 'V', '\r', '\n', 0x1a, '\n'},
                                      .major = 1,
                                      .minor = 0,
                                      .owner = "volume"};
constexpr uint64_t kMaxBytes = uint64_t{1} << 16;

}  // namespace

absl::StatusOr<VolumeManifest> ReadVolumeManifest(const Directory& directory) {
  absl::StatusOr<std::vector<uint8_t>> bytes = directory.Read(kManifestName, kMaxBytes);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<ManifestReader> reader =
      ManifestReader::Open(*bytes, kVolumeKind, directory.Shown(kManifestName));
  // The name is ours: whatever else is in the file, it was a manifest.
  if (absl::IsInvalidArgument(reader.status())) {
    return absl::DataLossError(reader.status().message());
  }
  if (!reader.ok()) return reader.status();
  const size_t begin = reader->at();
  VolumeManifest manifest;
  manifest.capacity = reader->Number<uint64_t>();
  manifest.granularity = reader->Number<uint64_t>();
  manifest.region_bytes = reader->Number<uint64_t>();
  manifest.tracker = reader->Number<uint64_t>();
  manifest.name = reader->Text();
  if (!reader->ended() || manifest.name.empty() || manifest.capacity == 0 ||
      !CheckGeometry({.capacity = manifest.capacity, .granularity = manifest.granularity}).ok()) {
    return reader->Damaged(begin, "invalid volume fields");
  }
  return manifest;
}

absl::Status WriteVolumeManifest(const Directory& directory, const VolumeManifest& manifest) {
  ManifestWriter writer(kVolumeKind);
  writer.Number(manifest.capacity);
  writer.Number(manifest.granularity);
  writer.Number(manifest.region_bytes);
  writer.Number(manifest.tracker);
  writer.Text(manifest.name);
  const std::vector<uint8_t> bytes = std::move(writer).Finish();
  const std::array<std::span<const uint8_t>, 1> parts = {bytes};
  return directory.Write(kManifestName, parts, /*sync=*/true);
}

}  // namespace cbt::volume
