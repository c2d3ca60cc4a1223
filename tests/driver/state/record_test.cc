// The driver's files, of this and of earlier versions, whole and damaged.
#include "programs/driver/state/record.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/manifest_bytes.h"
#include "tests/support/status.h"

namespace cbt::driver {
namespace record_test {

using Bytes = std::vector<uint8_t>;

VolumeRecord Whole() {
  return {
      .name = "claim",
      .capacity = 1 << 20,
      .source = {ContentSource::Kind::kSnapshot, "snap-1"},
      .removed = true,
      .content = Content::kFormatting,
      .view = true,
      .left = volume::DataStamp{.inode = 7, .size = 1 << 20, .modified_ns = -1, .changed_ns = 5}};
}

// A record as an earlier minor version wrote it: without the fields that came later.
ManifestWriter Earlier(uint16_t minor) {
  ManifestWriter writer({.magic = {0x89, 'C', 'B', 'V', '\r', '\n', 0x1a, '\n'},
                         .major = 1,
                         .minor = minor,
                         .owner = "volume record"});
  writer.Number(uint64_t{4096});
  writer.Number(uint8_t{0});
  writer.Number(uint8_t{0});
  writer.Text("");
  writer.Text("claim");
  return writer;
}

TEST(VolumeRecordTest, EveryFieldIsKept) {
  VolumeRecord record = Whole();
  EXPECT_EQ(test::ValueOf(DecodeVolume(EncodeVolume(record), "RECORD")), record);
  record.left.reset();
  EXPECT_EQ(test::ValueOf(DecodeVolume(EncodeVolume(record), "RECORD")), record);
  record = {.name = "other", .capacity = 1, .content = Content::kBlank};
  EXPECT_EQ(test::ValueOf(DecodeVolume(EncodeVolume(record), "RECORD")), record);
}

TEST(VolumeRecordTest, EarlierVersionsAreRead) {
  VolumeRecord expected = {.name = "claim", .capacity = 4096, .content = Content::kBlank};
  EXPECT_EQ(test::ValueOf(DecodeVolume(Earlier(0).Finish(), "RECORD")), expected);
  ManifestWriter second = Earlier(2);
  second.Number(static_cast<uint8_t>(Content::kFormatting));
  second.Number(uint8_t{0});
  expected.content = Content::kFormatting;
  EXPECT_EQ(test::ValueOf(DecodeVolume(std::move(second).Finish(), "RECORD")), expected);
}

TEST(VolumeRecordTest, AStampThatIsCutOffIsDamage) {
  ManifestWriter writer = Earlier(3);
  writer.Number(static_cast<uint8_t>(Content::kFormatting));
  writer.Number(uint8_t{0});
  writer.Number(uint64_t{7});
  EXPECT_TRUE(absl::IsDataLoss(DecodeVolume(std::move(writer).Finish(), "RECORD").status()));
}

template <typename Decode>
void ExpectDamageIsSeen(const Bytes& whole, Decode decode) {
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size))));
  }
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_FALSE(decode(flipped)) << bit;
  }
}

TEST(VolumeRecordTest, NoDamageIsReadAsARecord) {
  ExpectDamageIsSeen(EncodeVolume(Whole()),
                     [](const Bytes& bytes) { return DecodeVolume(bytes, "RECORD").ok(); });
  const NodeRecord node = {.staging_path = "/staging",
                           .file_system = "xfs",
                           .mount_options = {"noatime"},
                           .targets = {{.path = "/target", .read_only = true}}};
  EXPECT_EQ(test::ValueOf(DecodeNode(EncodeNode(node), "NODE")), node);
  ExpectDamageIsSeen(EncodeNode(node),
                     [](const Bytes& bytes) { return DecodeNode(bytes, "NODE").ok(); });
  const SnapshotRecord snapshot = {.name = "monday",
                                   .cut = SnapshotCut{.created_ns = 3, .size = 9}};
  EXPECT_EQ(test::ValueOf(DecodeSnapshot(EncodeSnapshot(snapshot), "one")), snapshot);
  ExpectDamageIsSeen(EncodeSnapshot(snapshot),
                     [](const Bytes& bytes) { return DecodeSnapshot(bytes, "one").ok(); });
  SnapshotRecord member = snapshot;
  member.group = "group-1";
  EXPECT_EQ(test::ValueOf(DecodeSnapshot(EncodeSnapshot(member), "one")), member);
  ExpectDamageIsSeen(EncodeSnapshot(member),
                     [](const Bytes& bytes) { return DecodeSnapshot(bytes, "one").ok(); });
  GroupRecord group = {.name = "nightly"};
  EXPECT_EQ(test::ValueOf(DecodeGroup(EncodeGroup(group), "one")), group);
  group.taken = true;
  group.members = {{.volume_id = "vol-1", .snapshot_id = "snap-1"},
                   {.volume_id = "vol-2", .cut = {.created_ns = 3, .size = 9}}};
  EXPECT_EQ(test::ValueOf(DecodeGroup(EncodeGroup(group), "one")), group);
  group.answered = true;
  EXPECT_EQ(test::ValueOf(DecodeGroup(EncodeGroup(group), "one")), group);
  ExpectDamageIsSeen(EncodeGroup(group),
                     [](const Bytes& bytes) { return DecodeGroup(bytes, "one").ok(); });
}

TEST(GroupRecordTest, EarlierVersionsAreRead) {
  ManifestWriter writer({.magic = {0x89, 'C', 'B', 'G', '\r', '\n', 0x1a, '\n'},
                         .major = 1,
                         .minor = 0,
                         .owner = "group snapshot record"});
  writer.Text("nightly");
  writer.Number(uint8_t{1});
  writer.Number(uint32_t{0});
  // A client may know of it.
  const GroupRecord expected = {.name = "nightly", .taken = true, .answered = true};
  EXPECT_EQ(test::ValueOf(DecodeGroup(std::move(writer).Finish(), "one")), expected);
}

TEST(SnapshotRecordTest, EarlierVersionsAreRead) {
  ManifestWriter writer({.magic = {0x89, 'C', 'B', 'S', '\r', '\n', 0x1a, '\n'},
                         .major = 1,
                         .minor = 1,
                         .owner = "snapshot record"});
  writer.Text("monday");
  writer.Number(uint8_t{1});
  writer.Number(int64_t{3});
  writer.Number(uint64_t{9});
  const SnapshotRecord expected = {.name = "monday",
                                   .cut = SnapshotCut{.created_ns = 3, .size = 9}};
  EXPECT_EQ(test::ValueOf(DecodeSnapshot(std::move(writer).Finish(), "one")), expected);
}

}  // namespace record_test
}  // namespace cbt::driver
