#include "base/manifest_bytes.h"

// In this file alone, so that nothing needs to be linked.
#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): its name
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/change_map.h"

namespace cbt {

namespace {

constexpr size_t kVersionEnd = 12;
constexpr size_t kChecksumBytes = 8;

absl::Status DamagedAt(std::string_view name, size_t at, std::string_view why) {
  return absl::DataLossError(absl::StrCat(AbslView(name), ": offset ", at, ": ", AbslView(why)));
}

}  // namespace

ManifestWriter::ManifestWriter(const ManifestKind& kind)
    : bytes_(kind.magic.begin(), kind.magic.end()) {
  Number(kind.major);
  Number(kind.minor);
}

void ManifestWriter::Text(const std::string& text) {
  Number(static_cast<uint16_t>(text.size()));
  bytes_.insert(bytes_.end(), text.begin(), text.end());
}

void ManifestWriter::File(const ManifestFile& file) {
  Number(file.number);
  Number(file.checksum);
}

std::vector<uint8_t> ManifestWriter::Finish() && {
  Number(Checksum(bytes_));
  return std::move(bytes_);
}

absl::StatusOr<ManifestReader> ManifestReader::Open(std::span<const uint8_t> bytes,
                                                    const ManifestKind& kind,
                                                    std::string_view name) {
  if (bytes.size() < kind.magic.size() ||
      !std::equal(kind.magic.begin(), kind.magic.end(), bytes.begin())) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(name), ": not a ", kind.owner, " manifest"));
  }
  if (bytes.size() < kVersionEnd + kChecksumBytes) {
    return DamagedAt(name, bytes.size(), "truncated");
  }
  ManifestReader reader(bytes.first(bytes.size() - kChecksumBytes), kind.magic.size(), name);
  const auto major = reader.Number<uint16_t>();
  const auto minor = reader.Number<uint16_t>();
  if (major < kind.oldest_major || major > kind.major) {
    const std::string reads =
        kind.oldest_major == kind.major
            ? absl::StrCat("version ", kind.major)
            : absl::StrCat("versions ", kind.oldest_major, " to ", kind.major);
    return absl::UnimplementedError(absl::StrCat(AbslView(name), ": has version ", major, ".",
                                                 minor, " of the ", kind.owner,
                                                 " format; this program reads ", reads));
  }
  reader.major_ = major;
  uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + reader.bytes_.size(), sizeof(checksum));
  if (checksum != Checksum(reader.bytes_)) {
    return DamagedAt(name, reader.bytes_.size(), "the checksum does not match");
  }
  return reader;
}

std::string ManifestReader::Text() {
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

ManifestFile ManifestReader::File() {
  const auto number = Number<uint64_t>();
  return {number, Number<uint64_t>()};
}

absl::Status ManifestReader::Damaged(size_t at, std::string_view why) const {
  return DamagedAt(name_, at, why);
}

uint64_t Checksum(std::span<const uint8_t> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace cbt
