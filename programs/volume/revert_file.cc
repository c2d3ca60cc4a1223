#include "programs/volume/revert_file.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/manifest_bytes.h"
#include "programs/volume/volume_directory.h"

namespace cbt::volume {
namespace {

constexpr ManifestKind kRevertKind = {.magic = {0x89, 'C', 'B', 'W', '\r', '\n', 0x1a, '\n'},
                                      .major = 1,
                                      .minor = 0,
                                      .owner = "revert"};
constexpr uint64_t kMaxRevertBytes = 4096;

}  // namespace

absl::Status WriteRevert(const Directory& directory, const std::string& name) {
  ManifestWriter writer(kRevertKind);
  writer.Text(name);
  const std::vector<uint8_t> bytes = std::move(writer).Finish();
  const std::array<std::span<const uint8_t>, 1> parts = {bytes};
  return directory.Write(kRevertName, parts, /*sync=*/true);
}

absl::StatusOr<std::string> ReadRevert(const Directory& directory) {
  const absl::StatusOr<std::vector<uint8_t>> bytes = directory.Read(kRevertName, kMaxRevertBytes);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<ManifestReader> reader =
      ManifestReader::Open(*bytes, kRevertKind, directory.Shown(kRevertName));
  if (absl::IsInvalidArgument(reader.status())) {
    return absl::DataLossError(reader.status().message());
  }
  if (!reader.ok()) return reader.status();
  const size_t begin = reader->at();
  std::string name = reader->Text();
  if (!reader->ended() || name.empty()) return reader->Damaged(begin, "not a snapshot's name");
  return name;
}

absl::Status RemoveRevert(const Directory& directory) {
  if (!directory.Remove(kRevertName)) return FileError(directory.Shown(kRevertName), errno);
  return directory.Sync();
}

}  // namespace cbt::volume
