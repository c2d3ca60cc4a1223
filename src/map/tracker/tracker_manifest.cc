#include "map/tracker/tracker_manifest.h"

#include <algorithm>
#include <utility>

#include "cbt/cursor.h"

namespace cbt {
namespace {

constexpr ManifestKind kKind = {.magic = {0x89, 'C', 'B', 'T', '\r', '\n', 0x1a, '\n'},
                                .major = 2,
                                .minor = 0,
                                .owner = "tracker"};

enum Flags : uint8_t { kClosed = 1, kHasLateWrites = 2, kOpening = 4, kOlderClosed = 8 };
constexpr uint8_t kExact = 1;

}  // namespace

TrackedEpoch* TrackerManifest::Find(uint64_t epoch) noexcept {
  const auto found = std::find_if(epochs.begin(), epochs.end(), [epoch](const TrackedEpoch& each) {
    return each.number == epoch;
  });
  return found == epochs.end() ? nullptr : &*found;
}

void TrackerManifest::KeepOnly(uint64_t epoch) noexcept {
  std::erase_if(epochs, [epoch](const TrackedEpoch& each) { return each.number != epoch; });
  if (late.has_value() && Find(late->until) == nullptr) late.reset();
  older_closed = false;
}

void TrackerManifest::DropNewer() noexcept {
  const uint64_t newer = epochs.back().number;
  epochs.pop_back();
  if (late.has_value() && late->until == newer) late->until = epochs.back().number;
  opening = false;
}

std::vector<uint8_t> EncodeManifest(const TrackerManifest& manifest) {
  ManifestWriter writer(kKind);
  writer.Number(manifest.id);
  writer.Number(manifest.geometry.capacity);
  writer.Number(manifest.geometry.granularity);
  writer.Number(manifest.next_epoch);
  writer.Number(manifest.next_file);
  writer.Number(static_cast<uint8_t>(
      (manifest.closed ? kClosed : 0) | (manifest.late.has_value() ? kHasLateWrites : 0) |
      (manifest.opening ? kOpening : 0) | (manifest.older_closed ? kOlderClosed : 0)));
  writer.Text(manifest.volume);
  writer.Number(static_cast<uint8_t>(manifest.epochs.size()));
  for (const TrackedEpoch& epoch : manifest.epochs) {
    writer.Number(epoch.number);
    writer.Text(epoch.base);
    writer.Number(static_cast<uint8_t>(epoch.exact ? kExact : 0));
    writer.File(epoch.map);
    writer.Number(static_cast<uint32_t>(epoch.logs.size()));
    for (const ManifestFile& log : epoch.logs) writer.File(log);
  }
  if (manifest.late.has_value()) {
    writer.File(manifest.late->map);
    writer.Number(manifest.late->until);
  }
  return std::move(writer).Finish();
}

absl::StatusOr<TrackerManifest> DecodeTrackerManifest(std::span<const uint8_t> bytes,
                                                      std::string_view name) {
  absl::StatusOr<ManifestReader> opened = ManifestReader::Open(bytes, kKind, name);
  if (!opened.ok()) return opened.status();
  ManifestReader& reader = *opened;
  const size_t begin = reader.at();
  TrackerManifest manifest;
  manifest.id = reader.Number<uint64_t>();
  manifest.geometry.capacity = reader.Number<uint64_t>();
  manifest.geometry.granularity = reader.Number<uint64_t>();
  manifest.next_epoch = reader.Number<uint64_t>();
  manifest.next_file = reader.Number<uint64_t>();
  const auto flags = reader.Number<uint8_t>();
  manifest.closed = (flags & kClosed) != 0;
  manifest.opening = (flags & kOpening) != 0;
  manifest.older_closed = (flags & kOlderClosed) != 0;
  manifest.volume = reader.Text();
  const auto epochs = reader.Number<uint8_t>();
  if (!reader.sound() || flags > (kClosed | kHasLateWrites | kOpening | kOlderClosed) ||
      epochs < 1 || epochs > 2 || ((manifest.opening || manifest.older_closed) && epochs != 2) ||
      (manifest.opening && manifest.older_closed) || !CheckGeometry(manifest.geometry).ok()) {
    return reader.Damaged(begin, "invalid volume fields");
  }
  const auto is_known = [&manifest](const ManifestFile& file) {
    return file.number != 0 && file.number < manifest.next_file;
  };
  for (uint8_t i = 0; i < epochs; ++i) {
    const size_t at = reader.at();
    TrackedEpoch epoch;
    epoch.number = reader.Number<uint64_t>();
    epoch.base = reader.Text();
    const auto exact = reader.Number<uint8_t>();
    epoch.exact = exact == kExact;
    epoch.map = reader.File();
    const auto logs = reader.Number<uint32_t>();
    bool sound = exact <= kExact && epoch.number < manifest.next_epoch &&
                 (i == 0 || epoch.number > manifest.epochs.back().number) &&
                 (epoch.map == ManifestFile{} || is_known(epoch.map)) &&
                 // Only a closed epoch, or one of a closed tracker, needs no log, but then it has a
                 // map.
                 (logs != 0 || ((manifest.closed || (manifest.older_closed && i == 0)) &&
                                epoch.map.number != 0)) &&
                 (logs == 0 || !manifest.older_closed || i != 0);
    for (uint32_t log = 0; log < logs && sound && reader.sound(); ++log) {
      const ManifestFile file = reader.File();
      sound = is_known(file) && (log == 0 || file.number > epoch.logs.back().number);
      epoch.logs.push_back(file);
    }
    if (!sound || !reader.sound()) return reader.Damaged(at, "invalid epoch fields");
    manifest.epochs.push_back(std::move(epoch));
  }
  if ((flags & kHasLateWrites) != 0) {
    const size_t at = reader.at();
    LateWrites late;
    late.map = reader.File();
    late.until = reader.Number<uint64_t>();
    if (!reader.sound() || !is_known(late.map) || manifest.Find(late.until) == nullptr) {
      return reader.Damaged(at, "invalid late-write fields");
    }
    manifest.late = late;
  }
  if (!reader.ended()) return reader.Damaged(reader.at(), "trailing bytes");
  return manifest;
}

}  // namespace cbt
