#include "programs/driver/state/record.h"

#include <utility>

#include "base/manifest_bytes.h"

namespace cbt::driver {
namespace {

constexpr ManifestKind kVolume = {.magic = {0x89, 'C', 'B', 'V', '\r', '\n', 0x1a, '\n'},
                                  .major = 1,
                                  .minor = 3,
                                  .owner = "volume record"};
constexpr ManifestKind kNode = {.magic = {0x89, 'C', 'B', 'N', '\r', '\n', 0x1a, '\n'},
                                .major = 1,
                                .minor = 0,
                                .owner = "node record"};
constexpr ManifestKind kSnapshot = {.magic = {0x89, 'C', 'B', 'S', '\r', '\n', 0x1a, '\n'},
                                    .major = 1,
                                    .minor = 2,
                                    .owner = "snapshot record"};
constexpr ManifestKind kGroup = {.magic = {0x89, 'C', 'B', 'G', '\r', '\n', 0x1a, '\n'},
                                 .major = 1,
                                 .minor = 1,
                                 .owner = "group snapshot record"};

// The status of a reader after the last field.
absl::Status CheckEnded(const ManifestReader& reader) {
  return reader.ended() ? absl::OkStatus()
                        : reader.Damaged(reader.at(), "the record does not end here");
}

void WriteFlag(ManifestWriter& writer, bool flag) { writer.Number(static_cast<uint8_t>(flag)); }
bool ReadFlag(ManifestReader& reader) { return reader.Number<uint8_t>() != 0; }

}  // namespace

std::vector<uint8_t> EncodeVolume(const VolumeRecord& record) {
  ManifestWriter writer(kVolume);
  writer.Number(record.capacity);
  WriteFlag(writer, record.removed);
  writer.Number(static_cast<uint8_t>(record.source.kind));
  writer.Text(record.source.id);
  writer.Text(record.name);
  writer.Number(static_cast<uint8_t>(record.content));
  WriteFlag(writer, record.view);
  if (record.left.has_value()) volume::EncodeStamp(writer, *record.left);
  return std::move(writer).Finish();
}

absl::StatusOr<VolumeRecord> DecodeVolume(std::span<const uint8_t> bytes, std::string_view shown) {
  absl::StatusOr<ManifestReader> reader = ManifestReader::Open(bytes, kVolume, shown);
  if (!reader.ok()) return reader.status();
  VolumeRecord record;
  record.capacity = reader->Number<uint64_t>();
  record.removed = ReadFlag(*reader);
  const size_t at = reader->at();
  const auto kind = reader->Number<uint8_t>();
  if (kind > static_cast<uint8_t>(ContentSource::Kind::kVolume)) {
    return reader->Damaged(at, "unknown kind of content source");
  }
  record.source.kind = static_cast<ContentSource::Kind>(kind);
  record.source.id = reader->Text();
  record.name = reader->Text();
  // For a record without the field, only the data shows whether the volume was written to.
  record.content =
      record.source.kind == ContentSource::Kind::kNone ? Content::kBlank : Content::kUsed;
  if (!reader->ended()) {
    const size_t content_at = reader->at();
    const auto content = reader->Number<uint8_t>();
    if (content > static_cast<uint8_t>(Content::kUsed)) {
      return reader->Damaged(content_at, "unknown kind of content");
    }
    record.content = static_cast<Content>(content);
  }
  if (!reader->ended()) record.view = ReadFlag(*reader);
  if (!reader->ended()) record.left = volume::DecodeStamp(*reader);
  if (absl::Status ended = CheckEnded(*reader); !ended.ok()) return ended;
  return record;
}

std::vector<uint8_t> EncodeNode(const NodeRecord& record) {
  ManifestWriter writer(kNode);
  writer.Text(record.staging_path);
  WriteFlag(writer, record.block);
  writer.Text(record.file_system);
  WriteFlag(writer, record.read_only);
  writer.Text(record.nbd_device);
  writer.Number(static_cast<uint32_t>(record.mount_options.size()));
  for (const std::string& option : record.mount_options) writer.Text(option);
  writer.Number(static_cast<uint32_t>(record.targets.size()));
  for (const Target& target : record.targets) {
    writer.Text(target.path);
    WriteFlag(writer, target.read_only);
  }
  return std::move(writer).Finish();
}

absl::StatusOr<NodeRecord> DecodeNode(std::span<const uint8_t> bytes, std::string_view shown) {
  absl::StatusOr<ManifestReader> reader = ManifestReader::Open(bytes, kNode, shown);
  if (!reader.ok()) return reader.status();
  NodeRecord record;
  record.staging_path = reader->Text();
  record.block = ReadFlag(*reader);
  record.file_system = reader->Text();
  record.read_only = ReadFlag(*reader);
  record.nbd_device = reader->Text();
  const auto options = reader->Number<uint32_t>();
  for (uint32_t i = 0; i < options && reader->sound(); ++i) {
    record.mount_options.push_back(reader->Text());
  }
  const auto targets = reader->Number<uint32_t>();
  for (uint32_t i = 0; i < targets && reader->sound(); ++i) {
    Target target;
    target.path = reader->Text();
    target.read_only = ReadFlag(*reader);
    record.targets.push_back(std::move(target));
  }
  if (absl::Status ended = CheckEnded(*reader); !ended.ok()) return ended;
  return record;
}

std::vector<uint8_t> EncodeSnapshot(const SnapshotRecord& record) {
  ManifestWriter writer(kSnapshot);
  writer.Text(record.name);
  WriteFlag(writer, record.cut.has_value());
  const SnapshotCut cut = record.cut.value_or(SnapshotCut{});
  writer.Number(cut.created_ns);
  writer.Number(cut.size);
  if (!record.group.empty()) writer.Text(record.group);
  return std::move(writer).Finish();
}

absl::StatusOr<SnapshotRecord> DecodeSnapshot(std::span<const uint8_t> bytes,
                                              std::string_view shown) {
  absl::StatusOr<ManifestReader> reader = ManifestReader::Open(bytes, kSnapshot, shown);
  if (!reader.ok()) return reader.status();
  SnapshotRecord record = {.name = reader->Text(), .cut = SnapshotCut{}};
  if (reader->ended()) return record;  // version 1.0
  const bool cut = ReadFlag(*reader);
  record.cut->created_ns = reader->Number<int64_t>();
  record.cut->size = reader->Number<uint64_t>();
  if (!cut) record.cut.reset();
  if (!reader->ended()) record.group = reader->Text();  // since version 1.2
  if (absl::Status ended = CheckEnded(*reader); !ended.ok()) return ended;
  return record;
}

std::vector<uint8_t> EncodeGroup(const GroupRecord& record) {
  ManifestWriter writer(kGroup);
  writer.Text(record.name);
  WriteFlag(writer, record.taken);
  writer.Number(static_cast<uint32_t>(record.members.size()));
  for (const GroupMember& member : record.members) {
    writer.Text(member.volume_id);
    writer.Text(member.snapshot_id);
    writer.Number(member.cut.created_ns);
    writer.Number(member.cut.size);
  }
  WriteFlag(writer, record.answered);
  return std::move(writer).Finish();
}

absl::StatusOr<GroupRecord> DecodeGroup(std::span<const uint8_t> bytes, std::string_view shown) {
  absl::StatusOr<ManifestReader> reader = ManifestReader::Open(bytes, kGroup, shown);
  if (!reader.ok()) return reader.status();
  GroupRecord record = {.name = reader->Text()};
  record.taken = ReadFlag(*reader);
  const auto members = reader->Number<uint32_t>();
  for (uint32_t i = 0; i < members && reader->sound(); ++i) {
    GroupMember member;
    member.volume_id = reader->Text();
    member.snapshot_id = reader->Text();
    member.cut.created_ns = reader->Number<int64_t>();
    member.cut.size = reader->Number<uint64_t>();
    record.members.push_back(std::move(member));
  }
  record.answered = reader->ended() || ReadFlag(*reader);  // since version 1.1
  if (absl::Status ended = CheckEnded(*reader); !ended.ok()) return ended;
  return record;
}

}  // namespace cbt::driver
