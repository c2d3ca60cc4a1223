#include "map/map_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/manifest_bytes.h"
#include "base/text.h"
#include "map/map_access.h"
#include "map/map_cursor.h"
#include "map/unchanged_cursor.h"

namespace cbt {
namespace {

// The first byte is not text, and a transfer as text would mangle one of the line ends.
constexpr std::array<uint8_t, 8> kMagic = {0x89, 'C', 'B', 'M', '\r', '\n', 0x1a, '\n'};
constexpr uint16_t kMajor = 1;
constexpr uint16_t kMinor = 0;
constexpr unsigned kPieceShift = 16;
constexpr uint64_t kPieceBytes = uint64_t{1} << kPieceShift;
constexpr size_t kFixedBytes = 80;
constexpr size_t kChecksumBytes = 8;

// Offsets of the fields of the fixed part.
constexpr size_t kMajorAt = 8;
constexpr size_t kMinorAt = 10;
constexpr size_t kHeaderSizeAt = 12;
constexpr size_t kMustKnowAt = 16;
constexpr size_t kCapacityAt = 32;
constexpr size_t kGranularityAt = 40;
constexpr size_t kCardinalityAt = 48;
constexpr size_t kPayloadSizeAt = 56;
constexpr size_t kPieceShiftAt = 64;
constexpr size_t kVolumeSizeAt = 68;
constexpr size_t kBaseSizeAt = 70;
constexpr size_t kTargetSizeAt = 72;
constexpr size_t kReservedAt = 74;
constexpr size_t kExtensionSizeAt = 76;

constexpr uint64_t RoundUp8(uint64_t bytes) noexcept { return (bytes + 7) / 8 * 8; }

uint64_t Pieces(uint64_t payload) noexcept { return (payload + kPieceBytes - 1) >> kPieceShift; }

template <typename T>
void Store(std::vector<uint8_t>& bytes, size_t at, T number) noexcept {
  std::memcpy(bytes.data() + at, &number, sizeof(number));
}

absl::Status Damaged(std::string_view name, uint64_t at, std::string_view why) {
  return absl::DataLossError(absl::StrCat(AbslView(name), ": offset ", at, ": ", AbslView(why)));
}

// The same status, prefixed with the file's name.
absl::Status Named(std::string_view name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(AbslView(name), ": payload: ", status.message()));
}

absl::Status CheckName(std::string_view what, std::string_view name) {
  const char* const wrong = name.size() > kMaxMapNameBytes              ? "is too long"
                            : name.find('\0') != std::string_view::npos ? "contains a NUL"
                            : !IsUtf8(name)                             ? "is not UTF-8"
                                                                        : nullptr;
  if (wrong == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the name of the ", AbslView(what), " ", wrong));
}

// Compares each piece with its digest, once.
class PieceGuard final : public ByteGuard {
 public:
  PieceGuard(const MapFileParts& parts, std::string_view name)
      : name_(name),
        payload_(parts.payload),
        digests_(parts.digests),
        header_bytes_(parts.header.file_bytes - parts.payload.size()),
        sound_(Pieces(parts.payload.size())) {}

  absl::Status Check(uint64_t begin, uint64_t end) const override {
    for (uint64_t piece = begin >> kPieceShift; piece << kPieceShift < end; ++piece) {
      std::atomic<bool>& sound = sound_[piece];
      if (sound.load(std::memory_order_relaxed)) continue;
      const uint64_t at = piece << kPieceShift;
      const uint64_t size = std::min<uint64_t>(kPieceBytes, payload_.size() - at);
      if (Checksum(payload_.subspan(at, size)) != LoadU64(digests_.data() + 8 * piece)) {
        return Damaged(name_, header_bytes_ + at,
                       absl::StrCat("the checksum of ", size, " bytes from here does not match"));
      }
      sound.store(true, std::memory_order_relaxed);
    }
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const std::span<const uint8_t> payload_;
  const std::span<const uint8_t> digests_;
  const uint64_t header_bytes_;
  mutable std::vector<std::atomic<bool>> sound_;
};

absl::Status CheckCardinality(const ChangeMapHeader& header, uint64_t found,
                              std::string_view name) {
  if (header.cardinality == found) return absl::OkStatus();
  return Damaged(
      name, kCardinalityAt,
      absl::StrCat("the header says ", header.cardinality, " blocks, the payload has ", found));
}

// Checks every piece, then the bitmap.
absl::StatusOr<ChangeMap> CheckedMap(const MapFileParts& parts, std::shared_ptr<const void> storage,
                                     std::span<const uint8_t> payload, std::string_view name) {
  if (absl::Status status = PieceGuard(parts, name).Check(0, payload.size()); !status.ok()) {
    return status;
  }
  absl::StatusOr<ChangeMap> map =
      ChangeMapAccess::FromBytes(std::move(storage), payload, parts.header.geometry);
  if (!map.ok()) return Named(name, map.status());
  absl::Status status = CheckCardinality(parts.header, (*map)->cardinality(), name);
  if (!status.ok()) return status;
  map->set_identity(parts.header.identity);
  return map;
}

// Passes the parts of the map's file to `write`; returns its header.
template <typename Write>
absl::StatusOr<ChangeMapHeader> WriteMap(const ChangeMap& map, Write write) {
  ChangeMapHeader header{
      .geometry = map->geometry(), .identity = map.identity(), .cardinality = map->cardinality()};
  absl::StatusOr<std::vector<uint8_t>> bytes = EncodeMapHeader(header, map->portable());
  if (!bytes.ok()) return bytes.status();
  const std::span<const uint8_t> parts[] = {*bytes, map->portable()};
  if (absl::Status status = write(parts); !status.ok()) return status;
  return header;
}

}  // namespace

absl::Status CheckIdentity(const ChangeMapIdentity& identity) {
  if (absl::Status status = CheckName("volume", identity.volume); !status.ok()) return status;
  if (absl::Status status = CheckName("base", identity.base); !status.ok()) return status;
  return CheckName("target", identity.target);
}

absl::StatusOr<std::vector<uint8_t>> EncodeMapHeader(ChangeMapHeader& header,
                                                     std::span<const uint8_t> payload) {
  const ChangeMapIdentity& identity = header.identity;
  if (absl::Status status = CheckIdentity(identity); !status.ok()) return status;
  const size_t names = identity.volume.size() + identity.base.size() + identity.target.size();
  const uint64_t pieces = Pieces(payload.size());
  const uint64_t size = kFixedBytes + RoundUp8(names) + 8 * pieces + kChecksumBytes;
  std::vector<uint8_t> bytes(size);
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  Store(bytes, kMajorAt, kMajor);
  Store(bytes, kMinorAt, kMinor);
  Store(bytes, kHeaderSizeAt, static_cast<uint32_t>(size));
  Store(bytes, kCapacityAt, header.geometry.capacity);
  Store(bytes, kGranularityAt, header.geometry.granularity);
  Store(bytes, kCardinalityAt, header.cardinality);
  Store(bytes, kPayloadSizeAt, uint64_t{payload.size()});
  Store(bytes, kPieceShiftAt, uint32_t{kPieceShift});
  Store(bytes, kVolumeSizeAt, static_cast<uint16_t>(identity.volume.size()));
  Store(bytes, kBaseSizeAt, static_cast<uint16_t>(identity.base.size()));
  Store(bytes, kTargetSizeAt, static_cast<uint16_t>(identity.target.size()));
  size_t at = kFixedBytes;
  for (const std::string* name : {&identity.volume, &identity.base, &identity.target}) {
    std::copy(name->begin(), name->end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    at += name->size();
  }
  at = kFixedBytes + RoundUp8(names);
  for (uint64_t i = 0; i < pieces; ++i, at += 8) {
    const uint64_t begin = i << kPieceShift;
    Store(bytes, at,
          Checksum(payload.subspan(begin, std::min(kPieceBytes, payload.size() - begin))));
  }
  header.payload_bytes = payload.size();
  header.file_bytes = size + payload.size();
  header.checksum = Checksum({bytes.data(), at});
  Store(bytes, at, header.checksum);
  return bytes;
}

absl::StatusOr<MapFileParts> ParseMapFile(std::span<const uint8_t> file, std::string_view name) {
  if (file.size() < kMagic.size() || !std::equal(kMagic.begin(), kMagic.end(), file.begin())) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(name), ": not a change-map file (wrong magic number)"));
  }
  if (file.size() < kFixedBytes + kChecksumBytes) {
    return Damaged(name, file.size(), "ends in its header");
  }
  const uint8_t* const bytes = file.data();
  if (const uint16_t major = LoadU16(bytes + kMajorAt); major != kMajor) {
    return absl::UnimplementedError(
        absl::StrCat(AbslView(name), ": has version ", major, ".", LoadU16(bytes + kMinorAt),
                     " of the change-map format; this program reads version ", kMajor));
  }
  const uint64_t header_size = LoadU32(bytes + kHeaderSizeAt);
  if (header_size % 8 != 0 || header_size < kFixedBytes + kChecksumBytes) {
    return Damaged(name, kHeaderSizeAt, "invalid header size");
  }
  if (header_size > file.size()) return Damaged(name, file.size(), "ends in its header");
  const uint64_t checksum = LoadU64(bytes + header_size - kChecksumBytes);
  if (Checksum(file.first(header_size - kChecksumBytes)) != checksum) {
    return Damaged(name, header_size - kChecksumBytes, "the header's checksum does not match");
  }
  // The checksum only shows that the header is as written: its writer is not trusted.
  if (const uint64_t features = LoadU64(bytes + kMustKnowAt); features != 0) {
    return absl::UnimplementedError(absl::StrCat(AbslView(name), ": uses features (",
                                                 absl::Hex(features),
                                                 ") that this program does not know"));
  }
  MapFileParts parts;
  ChangeMapHeader& header = parts.header;
  header.geometry = {LoadU64(bytes + kCapacityAt), LoadU64(bytes + kGranularityAt)};
  header.cardinality = LoadU64(bytes + kCardinalityAt);
  header.payload_bytes = LoadU64(bytes + kPayloadSizeAt);
  header.file_bytes = file.size();
  header.checksum = checksum;
  absl::Status geometry = CheckGeometry(header.geometry);
  if (!geometry.ok()) return Damaged(name, kCapacityAt, std::string(geometry.message()));
  if (header.payload_bytes != file.size() - header_size) {
    return Damaged(name, kPayloadSizeAt,
                   absl::StrCat("the header says ", header.payload_bytes,
                                " bytes of payload, the file has ", file.size() - header_size));
  }
  if (LoadU32(bytes + kPieceShiftAt) != kPieceShift) {
    return Damaged(name, kPieceShiftAt, "the piece size is not 64 KiB");
  }
  if (LoadU16(bytes + kReservedAt) != 0) return Damaged(name, kReservedAt, "is not zero");
  const uint64_t names = uint64_t{LoadU16(bytes + kVolumeSizeAt)} + LoadU16(bytes + kBaseSizeAt) +
                         LoadU16(bytes + kTargetSizeAt);
  const uint64_t extension = LoadU32(bytes + kExtensionSizeAt);
  const uint64_t digests = 8 * Pieces(header.payload_bytes);
  if (extension % 8 != 0 ||
      header_size != kFixedBytes + RoundUp8(names) + extension + digests + kChecksumBytes) {
    return Damaged(name, kHeaderSizeAt, "the header size does not match its contents");
  }
  size_t at = kFixedBytes;
  const auto take = [&](size_t size_at) {
    const size_t size = LoadU16(bytes + size_at);
    std::string text(reinterpret_cast<const char*>(bytes) + at, size);
    at += size;
    return text;
  };
  header.identity.volume = take(kVolumeSizeAt);
  header.identity.base = take(kBaseSizeAt);
  header.identity.target = take(kTargetSizeAt);
  if (absl::Status status = CheckIdentity(header.identity); !status.ok()) {
    return Damaged(name, kFixedBytes, std::string(status.message()));
  }
  for (; at % 8 != 0; ++at) {
    if (bytes[at] != 0) return Damaged(name, at, "is not zero");
  }
  parts.digests = file.subspan(at + extension, digests);
  parts.payload = file.subspan(header_size);
  return parts;
}

absl::StatusOr<LazyMap> OpenLazily(std::span<const uint8_t> file,
                                   std::shared_ptr<const MappedFile> storage,
                                   std::string_view name) {
  absl::StatusOr<MapFileParts> parts = ParseMapFile(file, name);
  if (!parts.ok()) return parts.status();
  const VolumeGeometry& geometry = parts->header.geometry;
  absl::StatusOr<std::shared_ptr<PortableIndex>> index = PortableIndex::Parse(
      parts->payload, BlockCount(geometry.capacity, geometry.granularity),
      std::make_shared<PieceGuard>(*parts, name), absl::StrCat(AbslView(name), ": payload: "));
  if (!index.ok()) return index.status();
  absl::Status status = CheckCardinality(parts->header, (*index)->cardinality(), name);
  if (!status.ok()) return status;
  return LazyMap{parts->header, *std::move(index), std::move(storage)};
}

absl::StatusOr<std::vector<uint8_t>> EncodeChangeMap(const ChangeMap& map) {
  ChangeMapHeader header{
      .geometry = map->geometry(), .identity = map.identity(), .cardinality = map->cardinality()};
  absl::StatusOr<std::vector<uint8_t>> bytes = EncodeMapHeader(header, map->portable());
  if (!bytes.ok()) return bytes.status();
  bytes->insert(bytes->end(), map->portable().begin(), map->portable().end());
  return bytes;
}

absl::StatusOr<ChangeMapHeader> WriteChangeMap(const ChangeMap& map, const std::string& path,
                                               const WriteMapOptions& options) {
  return WriteMap(map, [&](std::span<const std::span<const uint8_t>> parts) {
    return WriteFileAtomically(path, parts, options.sync);
  });
}

absl::StatusOr<ChangeMapHeader> WriteMapIn(const Directory& directory, const std::string& file,
                                           const ChangeMap& map, bool sync) {
  return WriteMap(map, [&](std::span<const std::span<const uint8_t>> parts) {
    return directory.Write(file, parts, sync);
  });
}

absl::StatusOr<ChangeMap> DecodeChangeMap(std::span<const uint8_t> bytes, const std::string& name) {
  // Check the copy: others may be able to modify the original.
  auto storage = std::make_shared<const std::vector<uint8_t>>(bytes.begin(), bytes.end());
  absl::StatusOr<MapFileParts> parts = ParseMapFile(*storage, name);
  if (!parts.ok()) return parts.status();
  return CheckedMap(*parts, std::move(storage), parts->payload, name);
}

namespace {

// The name of the file in messages.
std::string NameOf(const std::string& path, std::string_view label) {
  return label.empty() ? path : std::string(label);
}

}  // namespace

absl::StatusOr<ChangeMap> ReadChangeMap(const std::string& path, std::string_view label) {
  const std::string name = NameOf(path, label);
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path, name);
  if (!file.ok()) return file.status();
  absl::StatusOr<MapFileParts> parts = ParseMapFile((*file)->bytes(), name);
  if (!parts.ok()) return parts.status();
  return CheckedMap(*parts, *std::move(file), parts->payload, name);
}

absl::StatusOr<ChangeMapHeader> ReadChangeMapHeader(const std::string& path,
                                                    std::string_view label) {
  const std::string name = NameOf(path, label);
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path, name);
  if (!file.ok()) return file.status();
  absl::StatusOr<MapFileParts> parts = ParseMapFile((*file)->bytes(), name);
  if (!parts.ok()) return parts.status();
  return parts->header;
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> OpenChangeMapCursor(const std::string& path,
                                                                  std::string_view label) {
  const std::string name = NameOf(path, label);
  absl::StatusOr<std::shared_ptr<const MappedFile>> file =
      MappedFile::Open(path, name, MappedFile::Watched::kYes);
  if (!file.ok()) return file.status();
  const std::span<const uint8_t> bytes = (*file)->bytes();
  absl::StatusOr<LazyMap> map = OpenLazily(bytes, *std::move(file), name);
  if (!map.ok()) return map.status();
  return MakeLazyMapCursor(*map);
}

std::unique_ptr<ExtentCursor> MakeLazyMapCursor(const LazyMap& map) {
  return WhileUnchanged(MakeContainerCursor({map.index}, map.header.geometry), {map.storage});
}

}  // namespace cbt
