#include "map/chain_manifest.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "core/absl_view.h"
#include "core/utf8.h"
#include "map/checksum.h"

namespace cbt {
namespace {

constexpr std::array<uint8_t, 8> kMagic = {0x89, 'C', 'B', 'C', '\r', '\n', 0x1a, '\n'};
constexpr uint16_t kMajor = 1;
constexpr uint16_t kMinor = 0;
constexpr size_t kVersionEnd = 12;
constexpr size_t kChecksumBytes = 8;

class Writer {
 public:
  template <typename T>
  void Number(T number) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(number));
    std::memcpy(bytes_.data() + at, &number, sizeof(number));
  }
  void Text(const std::string& text) {
    Number(static_cast<uint16_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  void File(const ChainFile& file) {
    Number(file.number);
    Number(file.checksum);
  }
  std::vector<uint8_t> bytes_{kMagic.begin(), kMagic.end()};
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  template <typename T>
  T Number() {
    T number = 0;
    if (bytes_.size() - at_ < sizeof(number)) {
      sound_ = false;
      return 0;
    }
    std::memcpy(&number, bytes_.data() + at_, sizeof(number));
    at_ += sizeof(number);
    return number;
  }
  std::string Text() {
    const auto size = Number<uint16_t>();
    if (bytes_.size() - at_ < size || size > kMaxMapNameBytes) {
      sound_ = false;
      return {};
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    sound_ &= IsUtf8(text) && text.find('\0') == std::string::npos;
    return text;
  }
  ChainFile File() {
    const auto number = Number<uint64_t>();
    return {number, Number<uint64_t>()};
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool sound_ = true;
};

ChainEntry ReadEntry(Reader& reader) {
  ChainEntry entry;
  entry.slot = reader.Number<uint64_t>();
  entry.capacity = reader.Number<uint64_t>();
  entry.floor = reader.Number<uint64_t>();
  entry.file = reader.File();
  entry.id = reader.Text();
  return entry;
}

}  // namespace

std::vector<uint8_t> EncodeManifest(const ChainManifest& manifest) {
  Writer writer;
  writer.Number(kMajor);
  writer.Number(kMinor);
  writer.Number(manifest.granularity);
  writer.Number(manifest.next_slot);
  writer.Number(manifest.next_file);
  writer.Text(manifest.volume);
  writer.Number(uint64_t{manifest.entries.size()});
  for (const ChainEntry& entry : manifest.entries) {
    writer.Number(entry.slot);
    writer.Number(entry.capacity);
    writer.Number(entry.floor);
    writer.File(entry.file);
    writer.Text(entry.id);
  }
  writer.Number(uint64_t{manifest.nodes.size()});
  for (const auto& [node, file] : manifest.nodes) {
    writer.Number(static_cast<uint8_t>(node.first));
    writer.Number(node.second);
    writer.File(file);
  }
  writer.Number(Checksum(writer.bytes_));
  return std::move(writer.bytes_);
}

absl::StatusOr<ChainManifest> DecodeManifest(std::span<const uint8_t> bytes,
                                             std::string_view name) {
  const auto damaged = [name](size_t at, const char* why) {
    return absl::DataLossError(absl::StrCat(AbslView(name), ": offset ", at, ": ", why));
  };
  if (bytes.size() < kMagic.size() || !std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) {
    return absl::InvalidArgumentError(absl::StrCat(AbslView(name), ": not a chain's manifest"));
  }
  if (bytes.size() < kVersionEnd + kChecksumBytes) return damaged(bytes.size(), "ends too soon");
  Reader reader(bytes.first(bytes.size() - kChecksumBytes));
  reader.at_ = kMagic.size();
  const auto major = reader.Number<uint16_t>();
  const auto minor = reader.Number<uint16_t>();
  if (major != kMajor) {
    return absl::UnimplementedError(
        absl::StrCat(AbslView(name), ": is of version ", major, ".", minor,
                     " of the chain format, this program reads version ", kMajor));
  }
  uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + reader.bytes_.size(), sizeof(checksum));
  if (checksum != Checksum(reader.bytes_)) {
    return damaged(reader.bytes_.size(), "the checksum is wrong");
  }
  ChainManifest manifest;
  manifest.granularity = reader.Number<uint64_t>();
  manifest.next_slot = reader.Number<uint64_t>();
  manifest.next_file = reader.Number<uint64_t>();
  manifest.volume = reader.Text();
  constexpr uint64_t kMostSlots = uint64_t{1} << 60;
  if (!reader.sound_ || !CheckGeometry(0, manifest.granularity).ok() ||
      manifest.next_slot > kMostSlots) {
    return damaged(kVersionEnd, "no possible beginning of a manifest");
  }
  const auto file_is_known = [&manifest](const ChainFile& file) {
    return file.number != 0 && file.number < manifest.next_file;
  };
  const auto entries = reader.Number<uint64_t>();
  for (uint64_t i = 0; i < entries; ++i) {
    const size_t at = reader.at_;
    ChainEntry entry = ReadEntry(reader);
    const bool follows =
        i == 0 ? entry.file.number == 0
               : entry.slot > manifest.entries.back().slot && file_is_known(entry.file);
    if (!reader.sound_ || !follows || entry.id.empty() || entry.slot >= manifest.next_slot ||
        entry.capacity > kMaxCapacity || entry.floor > entry.capacity) {
      return damaged(at, "no possible snapshot");
    }
    manifest.entries.push_back(std::move(entry));
  }
  if (manifest.entries.empty()) return damaged(reader.at_, "a chain without a snapshot");
  const auto nodes = reader.Number<uint64_t>();
  for (uint64_t i = 0; i < nodes; ++i) {
    const size_t at = reader.at_;
    const unsigned level = reader.Number<uint8_t>();
    const auto index = reader.Number<uint64_t>();
    const ChainFile file = reader.File();
    if (!reader.sound_ || level == 0 || level > kMaxChainLevel ||
        index > manifest.next_slot >> level || !file_is_known(file) ||
        (i > 0 && manifest.nodes.rbegin()->first >= ChainNode(level, index))) {
      return damaged(at, "no possible union");
    }
    manifest.nodes.emplace_hint(manifest.nodes.end(), ChainNode(level, index), file);
  }
  if (!reader.sound_ || reader.at_ != reader.bytes_.size()) {
    return damaged(reader.at_, "bytes behind the last union");
  }
  return manifest;
}

}  // namespace cbt
