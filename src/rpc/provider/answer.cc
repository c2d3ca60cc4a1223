#include "rpc/provider/answer.h"

#include <bit>
#include <cstring>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/wipe.h"
#include "cbt/cursor.h"
#include "cbt/units.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {
namespace {

using wire::ProtoReader;
using wire::WireType;

constexpr size_t kMaxTextBytes = 4096;

absl::Status Malformed(const ProtoReader& reader) {
  return ProviderBroken(absl::StrCat("malformed message: ", reader.status().message()));
}

absl::Status ReadText(const ProtoReader& reader, const char* name, std::string& text) {
  if (reader.text().size() > kMaxTextBytes || !IsUtf8(reader.text())) {
    return ProviderBroken(
        absl::StrCat(name, " is longer than ", kMaxTextBytes, " bytes, or not UTF-8"));
  }
  text = reader.text();
  return absl::OkStatus();
}

absl::Status DecodeFile(std::span<const uint8_t> bytes, AnswerHead& head) {
  ProtoReader reader(bytes);
  while (reader.Next()) {
    absl::Status status;
    if (reader.Is(1, WireType::kBytes)) status = ReadText(reader, "path", head.path);
    if (reader.Is(2, WireType::kBytes)) status = ReadText(reader, "format", head.format);
    if (reader.Is(3, WireType::kBytes)) status = ReadText(reader, "base_path", head.base_path);
    if (!status.ok()) return status;
  }
  return reader.status().ok() ? absl::OkStatus() : Malformed(reader);
}

absl::Status CheckHead(const AnswerHead& head, uint64_t content) {
  if (content < 1 || content > 3) {
    return ProviderBroken("the head's content is not BITMAP, EXTENTS or FILE");
  }
  if (!CheckGeometry(head.geometry).ok()) {
    return ProviderBroken(absl::StrCat("capacity or granularity out of range: ",
                                       head.geometry.capacity, " and ", head.geometry.granularity));
  }
  if (head.block_size > kMaxGranularity) {
    return ProviderBroken(absl::StrCat("block_size_bytes is out of range: ", head.block_size));
  }
  if (head.begins_at > head.geometry.capacity) {
    return ProviderBroken("begins_at_bytes is past the capacity");
  }
  if (head.content == AnswerContent::kFile) {
    if (head.path.empty()) return ProviderBroken("the head names no file");
    if (head.begins_at != 0) return ProviderBroken("begins_at_bytes is not for files");
  }
  // No product of eight blocks wraps.
  if (head.content == AnswerContent::kBitmap && head.begins_at != 0 &&
      (head.geometry.granularity > kMaxCapacity / 8 ||
       head.begins_at % (8 * head.geometry.granularity) != 0)) {
    return ProviderBroken("begins_at_bytes is not a multiple of 8 blocks");
  }
  return absl::OkStatus();
}

absl::Status DecodeHead(std::span<const uint8_t> bytes, AnswerHead& head) {
  head = {};
  head.geometry.granularity = 0;
  uint64_t content = 0;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    absl::Status status;
    if (reader.wire_type() == WireType::kVarint) {
      const uint64_t value = reader.varint();
      switch (reader.field()) {
        case 1:
          head.geometry.capacity = value;
          break;
        case 2:
          head.geometry.granularity = value;
          break;
        case 3:
          content = value;
          break;
        case 4:
          head.most_significant_first = value != 0;
          break;
        case 5:
          head.inverted = value != 0;
          break;
        case 7:
          head.block_size = value;
          break;
        case 9:
          head.may_change_unseen = value != 0;
          break;
        case 10:
          head.starts_anywhere = value != 0;
          break;
        case 11:
          head.begins_at = value;
          break;
        default:
          break;
      }
    } else if (reader.Is(6, WireType::kBytes)) {
      status = DecodeFile(reader.bytes(), head);
    } else if (reader.Is(8, WireType::kBytes)) {
      status = ReadText(reader, "version", head.version);
    }
    if (!status.ok()) return status;
  }
  if (!reader.status().ok()) return Malformed(reader);
  if (content <= 3) head.content = static_cast<AnswerContent>(content);
  // A bitmap of blocks of one byte is far more likely a forgotten field.
  if (head.content == AnswerContent::kBitmap && head.geometry.granularity == 0) {
    return ProviderBroken("a bitmap without granularity_bytes");
  }
  if (head.geometry.granularity == 0) head.geometry.granularity = 1;
  return CheckHead(head, content);
}

// A repeated fixed64 field, packed or not.
absl::Status AppendFixed(const ProtoReader& reader, std::vector<uint64_t>& values) {
  if (reader.wire_type() == WireType::kFixed64) {
    values.push_back(reader.varint());
    return absl::OkStatus();
  }
  const std::span<const uint8_t> bytes = reader.bytes();
  if (bytes.size() % 8 != 0) return ProviderBroken("malformed message: a list of fixed64 is cut");
  const size_t before = values.size();
  values.resize(before + bytes.size() / 8);
  static_assert(std::endian::native == std::endian::little);
  if (!bytes.empty()) std::memcpy(values.data() + before, bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status DecodeExtents(std::span<const uint8_t> bytes, AnswerPart& part) {
  part.offsets.clear();
  part.lengths.clear();
  part.covered = 0;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    const bool fixed =
        reader.wire_type() == WireType::kFixed64 || reader.wire_type() == WireType::kBytes;
    absl::Status status;
    if (reader.field() == 1 && fixed) status = AppendFixed(reader, part.offsets);
    if (reader.field() == 2 && fixed) status = AppendFixed(reader, part.lengths);
    if (reader.Is(3, WireType::kVarint)) part.covered = reader.varint();
    if (!status.ok()) return status;
  }
  if (!reader.status().ok()) return Malformed(reader);
  if (part.offsets.size() == part.lengths.size()) return absl::OkStatus();
  return ProviderBroken(absl::StrCat(part.offsets.size(), " offsets and ", part.lengths.size(),
                                     " lengths in one message"));
}

absl::Status DecodeEnd(std::span<const uint8_t> bytes, AnswerPart& part) {
  part.count = 0;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kVarint)) part.count = reader.varint();
  }
  return reader.status().ok() ? absl::OkStatus() : Malformed(reader);
}

}  // namespace

absl::Status ProviderBroken(std::string_view why) {
  return absl::InternalError(absl::StrCat("provider: ", AbslView(why)));
}

std::string EncodeOpenRequest(std::string_view base, std::string_view target,
                              const Secrets& secrets, uint64_t starting_offset) {
  std::string request;
  wire::AppendBytesField(request, 1, target);
  wire::AppendBytesField(request, 2, base);
  secrets.ForEach([&](const std::string& key, const std::string& value) {
    std::string entry;
    const Wiper wiper(entry);
    wire::AppendBytesField(entry, 1, key);
    wire::AppendBytesField(entry, 2, value);
    wire::AppendBytesFieldAlways(request, 3, entry);
  });
  wire::AppendVarintField(request, 4, starting_offset);
  return request;
}

bool AnswerHead::SameAs(const AnswerHead& other) const {
  const auto all = [](const AnswerHead& head) {
    return std::tie(head.geometry.capacity, head.geometry.granularity, head.content,
                    head.most_significant_first, head.inverted, head.path, head.base_path,
                    head.format, head.block_size, head.version, head.may_change_unseen);
  };
  return all(*this) == all(other);
}

absl::Status DecodeAnswer(std::span<const uint8_t> bytes, AnswerPart& part) {
  std::optional<std::span<const uint8_t>> found;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.wire_type() != WireType::kBytes || reader.field() > 4) continue;
    if (found.has_value()) return ProviderBroken("a message with more than one part");
    found = reader.bytes();
    part.kind = static_cast<AnswerPart::Kind>(reader.field() - 1);
  }
  if (!reader.status().ok()) return Malformed(reader);
  if (!found.has_value()) return ProviderBroken("a message without a head, bitmap, extents or end");
  switch (part.kind) {
    case AnswerPart::Kind::kHead:
      return DecodeHead(*found, part.head);
    case AnswerPart::Kind::kBitmap:
      part.bitmap = *found;
      return absl::OkStatus();
    case AnswerPart::Kind::kExtents:
      return DecodeExtents(*found, part);
    case AnswerPart::Kind::kEnd:
      return DecodeEnd(*found, part);
  }
  return absl::OkStatus();
}

}  // namespace cbt::rpc
