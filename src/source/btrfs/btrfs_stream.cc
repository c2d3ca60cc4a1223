#include "source/btrfs/btrfs_stream.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "source/btrfs/crc32c.h"

namespace cbt {
namespace {

constexpr char kMagic[] = "btrfs-stream";  // with its NUL
constexpr uint32_t kMaxVersion = 3;
constexpr size_t kCommandHeaderBytes = 10;
// The limit in version 1; later versions are limited only by the size of the field.
constexpr uint64_t kMaxCommandBytesV1 = 64 * kKiB;

// Numbers of fs/btrfs/send.h.
enum Attribute : uint16_t {
  kUuid = 1,
  kSize = 4,
  kPath = 15,
  kPathTo = 16,
  kPathLink = 17,
  kFileOffset = 18,
  kData = 19,
  kCloneUuid = 20,
  kCloneLength = 24,
  kFallocateMode = 25,
  kUnencodedFileLength = 27,
  kLastAttribute = 35,
};

template <typename T>
T LoadLittle(const uint8_t* bytes) noexcept {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(T{bytes[i]} << (8 * i));
  return value;
}

}  // namespace

bool IsBtrfsPath(std::string_view path) noexcept {
  if (path.size() > kMaxBtrfsPathBytes || path.find('\0') != std::string_view::npos) return false;
  if (path.empty()) return true;
  for (;;) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

BtrfsStreamReader::BtrfsStreamReader(ByteStream& stream, uint32_t version)
    : stream_(&stream),
      version_(version),
      scratch_(std::make_unique<std::array<uint8_t, 64 * kKiB>>()) {}

absl::StatusOr<BtrfsStreamReader> BtrfsStreamReader::Create(ByteStream& stream) {
  std::array<uint8_t, sizeof(kMagic) + 4> header;
  const uint64_t position = stream.position();
  if (absl::Status status = stream.ReadAll(header); !status.ok()) return status;
  if (std::memcmp(header.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::DataLossError(
        absl::StrCat(stream.label(), ": not a btrfs send stream at byte ", position));
  }
  const auto version = LoadLittle<uint32_t>(header.data() + sizeof(kMagic));
  if (version == 0 || version > kMaxVersion) {
    return absl::UnimplementedError(absl::StrCat(stream.label(), ": version ", version,
                                                 " of btrfs send streams, at byte ",
                                                 position + sizeof(kMagic), ", is not supported"));
  }
  return BtrfsStreamReader(stream, version);
}

absl::Status BtrfsStreamReader::Damaged(uint64_t position, std::string_view what) const {
  return absl::DataLossError(
      absl::StrCat(stream_->label(), ": byte ", position, ": ", AbslView(what)));
}

absl::Status BtrfsStreamReader::Take(std::span<uint8_t> out) {
  if (out.size() > left_) {
    return Damaged(stream_->position(), "the attribute reaches past its command");
  }
  if (absl::Status status = stream_->ReadAll(out); !status.ok()) return status;
  crc_ = ExtendCrc32c(crc_, out);
  left_ -= out.size();
  return absl::OkStatus();
}

absl::Status BtrfsStreamReader::Pass(uint64_t count) {
  if (count > left_) return Damaged(stream_->position(), "the attribute reaches past its command");
  while (count > 0) {
    const auto piece = static_cast<size_t>(std::min<uint64_t>(count, scratch_->size()));
    if (absl::Status status = Take(std::span(*scratch_).first(piece)); !status.ok()) return status;
    count -= piece;
  }
  return absl::OkStatus();
}

absl::Status BtrfsStreamReader::ReadPath(size_t length, std::optional<std::string>& path) {
  const uint64_t position = stream_->position();
  if (length > kMaxBtrfsPathBytes) return Damaged(position, "the path is too long");
  path.emplace(length, '\0');
  absl::Status status = Take({reinterpret_cast<uint8_t*>(path->data()), length});
  if (!status.ok()) return status;
  if (!IsBtrfsPath(*path)) return Damaged(position, "not a path inside the subvolume");
  return absl::OkStatus();
}

absl::Status BtrfsStreamReader::ReadUuid(size_t length, std::optional<BtrfsCommand::Uuid>& uuid) {
  uuid.emplace();
  if (length != uuid->size()) {
    return Damaged(stream_->position(), absl::StrCat("a UUID of ", length, " bytes"));
  }
  return Take(*uuid);
}

template <typename T>
absl::Status BtrfsStreamReader::ReadNumber(size_t length, std::optional<T>& number) {
  std::array<uint8_t, sizeof(T)> bytes;
  if (length != bytes.size()) {
    return Damaged(stream_->position(),
                   absl::StrCat("a number of ", length, " bytes instead of ", bytes.size()));
  }
  if (absl::Status status = Take(bytes); !status.ok()) return status;
  number = LoadLittle<T>(bytes.data());
  return absl::OkStatus();
}

absl::Status BtrfsStreamReader::ReadAttribute(BtrfsCommand& command) {
  const uint64_t position = stream_->position();
  std::array<uint8_t, 2> field;
  if (absl::Status status = Take(field); !status.ok()) return status;
  const auto type = LoadLittle<uint16_t>(field.data());
  if (type == kData && version_ >= 2) {
    // This attribute has no length: it is the rest of the command.
    command.data_length = left_;
    seen_ |= uint64_t{1} << kData;
    return Pass(left_);
  }
  if (absl::Status status = Take(field); !status.ok()) return status;
  const size_t length = LoadLittle<uint16_t>(field.data());
  if (type == 0 || type > kLastAttribute) {
    unknown_ = type;
    return Pass(length);
  }
  const uint64_t bit = uint64_t{1} << type;
  if ((seen_ & bit) != 0) {
    return Damaged(position, absl::StrCat("attribute ", type, " is given twice in one command"));
  }
  seen_ |= bit;
  switch (type) {
    case kUuid:
      return ReadUuid(length, command.uuid);
    case kCloneUuid:
      return ReadUuid(length, command.clone_uuid);
    case kSize:
      return ReadNumber(length, command.size);
    case kFileOffset:
      return ReadNumber(length, command.file_offset);
    case kCloneLength:
      return ReadNumber(length, command.clone_length);
    case kUnencodedFileLength:
      return ReadNumber(length, command.unencoded_file_length);
    case kFallocateMode:
      return ReadNumber(length, command.fallocate_mode);
    case kPath:
      return ReadPath(length, command.path);
    case kPathTo:
      return ReadPath(length, command.path_to);
    case kPathLink:
      // The target of a symbolic link is arbitrary text, not a file of the stream.
      if (command.type == BtrfsCommandType::kSymlink) return Pass(length);
      return ReadPath(length, command.path_link);
    case kData:
      command.data_length = length;
      return Pass(length);
    default:
      return Pass(length);
  }
}

absl::StatusOr<BtrfsCommand> BtrfsStreamReader::Next() {
  BtrfsCommand command;
  command.position = stream_->position();
  std::array<uint8_t, kCommandHeaderBytes> header;
  if (absl::Status status = stream_->ReadAll(header); !status.ok()) return status;
  left_ = LoadLittle<uint32_t>(header.data());
  const auto type = LoadLittle<uint16_t>(header.data() + 4);
  const auto wanted = LoadLittle<uint32_t>(header.data() + 6);
  if (version_ == 1 && left_ > kMaxCommandBytesV1) {
    return Damaged(command.position, absl::StrCat("a command of ", left_, " bytes"));
  }
  std::fill_n(header.begin() + 6, 4, uint8_t{0});
  crc_ = ExtendCrc32c(0, header);
  seen_ = 0;
  unknown_.reset();
  const bool known = type >= static_cast<uint16_t>(BtrfsCommandType::kSubvolume) &&
                     type <= static_cast<uint16_t>(BtrfsCommandType::kEnableVerity);
  if (known) {
    command.type = static_cast<BtrfsCommandType>(type);
    while (left_ > 0) {
      if (absl::Status status = ReadAttribute(command); !status.ok()) return status;
    }
  } else if (absl::Status status = Pass(left_); !status.ok()) {
    return status;
  }
  if (crc_ != wanted) {
    return Damaged(command.position, "the command does not match its checksum");
  }
  if (!known || unknown_.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(stream_->label(), ": byte ", command.position, ": ",
                     known ? absl::StrCat("command ", type, " has attribute ", *unknown_, ", which")
                           : absl::StrCat("command ", type),
                     " is unknown and could be a change"));
  }
  return command;
}

}  // namespace cbt
