// Handmade qcow2 images: the format, and violations of it. Images of qemu are in
// qcow2_tools_test.cc.
#include "cbt/source/qcow2.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "cbt/transform.h"
#include "tests/support/cursors.h"
#include "tests/support/memory_image.h"
#include "tests/support/qcow2_bytes.h"
#include "tests/support/qcow2_files.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace qcow2_test {

using absl::StatusCode;
using reference::Ranges;
using test::BusyQcow2;
using test::Drain;
using test::DrainFrom;
using test::MemoryImage;
using test::Qcow2Bytes;
using test::ValueOf;
using Files = test::Qcow2Files;
using testing::HasSubstr;

constexpr uint64_t kCluster = Qcow2Bytes::kCluster;

absl::StatusOr<std::shared_ptr<const Qcow2Image>> OpenBytes(const Qcow2Bytes& image) {
  Files files;
  files.Add("image", image.bytes());
  return files.Open("image");
}

using Cursor = absl::StatusOr<std::unique_ptr<ExtentCursor>>;

absl::StatusOr<Ranges> All(const Cursor& cursor) {
  if (!cursor.ok()) return cursor.status();
  return Drain(**cursor);
}

Ranges Clusters(const std::vector<std::pair<uint64_t, uint64_t>>& runs) {
  Ranges ranges;
  for (const auto& [first, count] : runs) ranges.emplace_back(first * kCluster, count * kCluster);
  return ranges;
}

TEST(Qcow2Test, SaysWhatTheTablesSay) {
  const auto image = OpenBytes(BusyQcow2());
  ASSERT_OK(image);
  EXPECT_EQ((*image)->virtual_size(), Qcow2Bytes::kSize);
  EXPECT_EQ((*image)->cluster_size(), 512u);
  EXPECT_EQ((*image)->allocation_unit(), 512u);
  EXPECT_EQ((*image)->depth(), 1u);
  EXPECT_FALSE((*image)->has_backing());
  EXPECT_EQ(ValueOf(All(MakeQcow2AllocationCursor({*image, {}}))),
            Clusters({{0, 2}, {3, 1}, {5, 1}, {63, 2}, {99, 1}}));
  EXPECT_EQ(ValueOf(All(MakeQcow2LayerCursor({*image, {}}))),
            Clusters({{0, 4}, {5, 2}, {63, 2}, {99, 1}}));
  ASSERT_EQ((*image)->snapshots().size(), 1u);
  EXPECT_EQ((*image)->snapshots()[0].name, "first");
  for (const char* name : {"1", "first"}) {
    EXPECT_EQ(ValueOf(All(MakeQcow2AllocationCursor({*image, name}))),
              Clusters({{0, 1}, {2, 2}, {64, 1}, {99, 1}}));
  }
}

// The volume ends inside the second place of a table, which is whole in the first one.
TEST(Qcow2Test, ReadsATableInTwoPlaces) {
  Qcow2Bytes bytes;
  bytes.Put(Qcow2Bytes::kL1 + 8, 8, 4 * kCluster);
  for (uint64_t cluster = 30; cluster < 51; ++cluster) bytes.Entry(cluster, 8 * kCluster);
  const auto image = OpenBytes(bytes);
  ASSERT_OK(image);
  const auto allocation = ValueOf(MakeQcow2AllocationCursor({*image, {}}));
  const auto layer = ValueOf(MakeQcow2LayerCursor({*image, {}}));
  for (ExtentCursor* const cursor : {allocation.get(), layer.get()}) {
    EXPECT_EQ(ValueOf(Drain(*cursor)), Clusters({{30, 21}, {94, 6}}));
    // Back to the first one while the second one is loaded.
    ASSERT_OK(cursor->Seek(98 * kCluster));
    EXPECT_EQ(ValueOf(Drain(*cursor)), Clusters({{98, 2}}));
    ASSERT_OK(cursor->Seek(40 * kCluster));
    EXPECT_EQ(ValueOf(Drain(*cursor)), Clusters({{40, 11}, {94, 6}}));
  }
}

TEST(Qcow2Test, ComparesPlacements) {
  const auto image = OpenBytes(BusyQcow2());
  ASSERT_OK(image);
  // 1: absent in the snapshot; 2: zeros against data; 4, 6: zeros against absent; 5: compressed;
  // 63: absent. Cluster 3 and the shared table's part are identical.
  const Ranges delta = Clusters({{1, 2}, {5, 1}, {63, 1}});
  EXPECT_EQ(ValueOf(All(MakeQcow2DeltaCursor({*image, "first"}, {*image, {}}))), delta);
  EXPECT_EQ(ValueOf(All(MakeQcow2DeltaCursor({*image, {}}, {*image, "1"}))), delta);
  EXPECT_EQ(ValueOf(All(MakeQcow2DeltaCursor({*image, {}}, {*image, {}}))), Ranges());
  const auto other = OpenBytes(BusyQcow2());
  EXPECT_EQ(ValueOf(All(MakeQcow2DeltaCursor({*other, {}}, {*image, {}}))),
            ValueOf(All(MakeQcow2AllocationCursor({*image, {}}))))
      << "data in another file is different";
}

TEST(Qcow2Test, ReadsABitmap) {
  const auto image = OpenBytes(BusyQcow2());
  ASSERT_OK(image);
  const auto bitmaps = (*image)->ListBitmaps();
  ASSERT_OK(bitmaps);
  ASSERT_EQ(bitmaps->size(), 1u);
  EXPECT_EQ((*bitmaps)[0].granularity, 512u);
  // 0x81, 0xff in byte 4 and in byte 12; of the last only 4 bits count.
  const Ranges expected = Clusters({{0, 1}, {7, 1}, {32, 8}, {96, 4}});
  const Cursor cursor = MakeQcow2BitmapCursor(*image, "changes");
  EXPECT_EQ(ValueOf(All(cursor)), expected);
  for (uint64_t offset = 0; offset <= Qcow2Bytes::kSize; offset += 100) {
    for (const size_t batch : {size_t{1}, size_t{2}, size_t{100}}) {
      EXPECT_EQ(ValueOf(DrainFrom(**cursor, offset, batch)),
                reference::CutAt(expected, offset / 512 * 512));
    }
  }
  EXPECT_EQ(All(MakeQcow2BitmapCursor(*image, "other")).status().code(), StatusCode::kNotFound);
}

TEST(Qcow2Test, ReadsBitmapsWithoutClusters) {
  Qcow2Bytes ones = BusyQcow2();
  ones.Put(16 * kCluster, 8, 1);
  EXPECT_EQ(ValueOf(All(MakeQcow2BitmapCursor(ValueOf(OpenBytes(ones)), "changes"))),
            Clusters({{0, 100}}));
  Qcow2Bytes zeros = BusyQcow2();
  zeros.Put(16 * kCluster, 8, 0);
  EXPECT_EQ(ValueOf(All(MakeQcow2BitmapCursor(ValueOf(OpenBytes(zeros)), "changes"))), Ranges());
}

TEST(Qcow2Test, RefusesBitmapsThatCannotBeTrusted) {
  constexpr uint64_t kAt = Qcow2Bytes::kDirectory;
  struct Case {
    uint64_t offset;
    unsigned size;
    uint64_t value;
    StatusCode code;
  };
  for (const Case& wrong : std::vector<Case>{
           {88, 8, 0, StatusCode::kFailedPrecondition},        // autoclear: inconsistent
           {kAt + 12, 4, 1, StatusCode::kFailedPrecondition},  // in use
           {kAt + 12, 4, 3, StatusCode::kFailedPrecondition},
           {kAt + 12, 4, 8, StatusCode::kUnimplemented},  // unknown flag
           {kAt + 16, 1, 2, StatusCode::kUnimplemented},  // unknown type
           {kAt + 17, 1, 63, StatusCode::kDataLoss},      // granularity
           {kAt + 17, 1, 8, StatusCode::kOk},             // 25 bytes still fit one cluster
           {kAt + 18, 2, 0, StatusCode::kDataLoss},       // no name
           {kAt + 18, 2, 999, StatusCode::kDataLoss},     // past the directory's end
           {kAt + 20, 4, 999, StatusCode::kDataLoss},
           {kAt, 8, 16 * kCluster + 8, StatusCode::kDataLoss},  // unaligned table
           {kAt, 8, 4096 * kCluster, StatusCode::kDataLoss},    // outside the file
           {kAt + 8, 4, 2, StatusCode::kDataLoss},              // table too long
           {kAt + 8, 4, 0, StatusCode::kDataLoss},              // table too short
           {16 * kCluster, 8, 2, StatusCode::kDataLoss},        // reserved bits of its entry
           {16 * kCluster, 8, 17 * kCluster | 1, StatusCode::kDataLoss},
           {16 * kCluster, 8, uint64_t{1} << 56, StatusCode::kDataLoss},
           {16 * kCluster, 8, 4096 * kCluster, StatusCode::kDataLoss},
       }) {
    Qcow2Bytes image = BusyQcow2();
    image.Put(wrong.offset, wrong.size, wrong.value);
    const auto opened = OpenBytes(image);
    ASSERT_OK(opened);
    const auto answer = All(MakeQcow2BitmapCursor(*opened, "changes"));
    EXPECT_EQ(answer.status().code(), wrong.code)
        << wrong.offset << " " << wrong.value << " " << answer.status();
    EXPECT_OK(All(MakeQcow2AllocationCursor({*opened, {}}))) << "is not part of it";
  }
}

TEST(Qcow2Test, RefusesHeaders) {
  struct Case {
    uint64_t offset;
    unsigned size;
    uint64_t value;
    StatusCode code;
    const char* text;
  };
  for (const Case& wrong : std::vector<Case>{
           {0, 4, 0x514649fa, StatusCode::kInvalidArgument, "not a qcow2 image"},
           {4, 4, 1, StatusCode::kUnimplemented, "version 1"},
           {4, 4, 4, StatusCode::kUnimplemented, "version 4"},
           {8, 8, 16, StatusCode::kDataLoss, "backing file name"},
           {20, 4, 8, StatusCode::kDataLoss, "at offset 20"},
           {20, 4, 22, StatusCode::kDataLoss, "at offset 20"},
           {24, 8, 1 << 20, StatusCode::kDataLoss, "need 32"},
           {24, 8, ~uint64_t{0}, StatusCode::kDataLoss, "virtual size"},
           {24, 8, kMaxCapacity, StatusCode::kDataLoss, "over the limit"},
           {32, 4, 3, StatusCode::kUnimplemented, "encryption"},
           {36, 4, 1, StatusCode::kDataLoss, "need 4"},
           {36, 4, 0xffffffff, StatusCode::kDataLoss, "over the limit"},
           {40, 8, 3 * kCluster + 8, StatusCode::kDataLoss, "does not begin a cluster"},
           {40, 8, 0, StatusCode::kDataLoss, "header"},
           {40, 8, uint64_t{1} << 40, StatusCode::kDataLoss, "past the end"},
           {48, 8, 8, StatusCode::kDataLoss, "reference count"},
           {60, 4, 65537, StatusCode::kDataLoss, "snapshots"},
           {64, 8, 9, StatusCode::kDataLoss, "snapshot table"},
           {72, 8, 1, StatusCode::kFailedPrecondition, "dirty"},
           {72, 8, 2, StatusCode::kFailedPrecondition, "corrupt"},
           {72, 8, 16, StatusCode::kDataLoss, "subclusters"},
           {72, 8, 32, StatusCode::kUnimplemented, "bit 5"},
           {72, 8, uint64_t{1} << 63, StatusCode::kUnimplemented, "bit 63"},
           {96, 4, 7, StatusCode::kDataLoss, "reference counts"},
           {100, 4, 96, StatusCode::kDataLoss, "header of 96"},
           {100, 4, 108, StatusCode::kDataLoss, "header of 108"},
           {100, 4, 520, StatusCode::kDataLoss, "header of 520"},
           {108, 4, 9999, StatusCode::kDataLoss, "header extension"},
           {108, 4, 16, StatusCode::kDataLoss, "not 24"},
           {116, 4, 1, StatusCode::kDataLoss, "reserved"},
           {Qcow2Bytes::kSnapshots + 36, 4, 2000, StatusCode::kDataLoss, "extra data"},
           {Qcow2Bytes::kSnapshots + 36, 4, 0, StatusCode::kDataLoss, "virtual size"},
           {Qcow2Bytes::kSnapshots + 12, 4, 0xffffffff, StatusCode::kDataLoss, "ends in entry 0"},
       }) {
    Qcow2Bytes image = BusyQcow2();
    if (std::string(wrong.text) == "need 4") image.Put(24, 8, 4 * 64 * kCluster);
    image.Put(wrong.offset, wrong.size, wrong.value);
    const auto opened = OpenBytes(image);
    EXPECT_EQ(opened.status().code(), wrong.code) << wrong.text << " " << opened.status();
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(wrong.text));
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr("qcow2: image: "));
  }
}

TEST(Qcow2Test, RefusesTables) {
  const uint64_t l2 = 4 * kCluster;
  struct Case {
    uint64_t offset;
    uint64_t value;
  };
  for (const Case& wrong : std::vector<Case>{
           {Qcow2Bytes::kL1, 1},                              // reserved bits
           {Qcow2Bytes::kL1, uint64_t{1} << 56},              //
           {Qcow2Bytes::kL1, Qcow2Bytes::kCopied},            // a flag without an offset
           {Qcow2Bytes::kL1, 4096 * kCluster},                // outside the file
           {Qcow2Bytes::kL1 + 8, 40 * kCluster},              // just outside
           {l2, 2},                                           // reserved bits
           {l2 + 8 * 7, 0x100},                               //
           {l2, uint64_t{1} << 56},                           //
           {l2, uint64_t{1} << 61},                           //
           {l2, Qcow2Bytes::kCopied},                         // a flag without an offset
           {l2 + 8 * 80, 40 * kCluster},                      // outside the file
           {l2, Qcow2Bytes::kCompressed},                     // inside the header
           {l2, Qcow2Bytes::kCompressed | 40 * kCluster},     // outside
           {l2, Qcow2Bytes::kCompressed | uint64_t{1} << 57}  // bits above 55
       }) {
    Qcow2Bytes image = BusyQcow2();
    image.Put(wrong.offset, 8, wrong.value);
    const auto opened = OpenBytes(image);
    ASSERT_OK(opened);
    const Qcow2State active = {*opened, {}};
    for (const auto& answer :
         {All(MakeQcow2AllocationCursor(active)), All(MakeQcow2LayerCursor(active))}) {
      EXPECT_EQ(answer.status().code(), StatusCode::kDataLoss) << wrong.offset;
      EXPECT_THAT(std::string(answer.status().message()),
                  HasSubstr("image: at offset " + std::to_string(wrong.offset)));
    }
  }
  // Version 2 has no zero clusters.
  Qcow2Bytes old = BusyQcow2();
  old.Put(4, 4, 2);
  const auto opened = OpenBytes(old);
  ASSERT_OK(opened);
  EXPECT_EQ(All(MakeQcow2AllocationCursor({*opened, {}})).status().code(), StatusCode::kDataLoss);
}

TEST(Qcow2Test, RefusesSnapshotsThatCannotBe) {
  const std::vector<std::function<void(Qcow2Bytes&)>> changes = {
      [](Qcow2Bytes& image) { image.Put(Qcow2Bytes::kSnapshots, 8, 8 * kCluster + 8); },
      [](Qcow2Bytes& image) { image.Put(Qcow2Bytes::kSnapshots, 8, 800 * kCluster); },
      [](Qcow2Bytes& image) { image.Put(Qcow2Bytes::kSnapshots + 8, 4, 1); },
      [](Qcow2Bytes& image) { image.Put(Qcow2Bytes::kSnapshots + 48, 8, ~uint64_t{0}); },
  };
  for (const auto& change : changes) {
    Qcow2Bytes image = BusyQcow2();
    change(image);
    const auto opened = OpenBytes(image);
    ASSERT_OK(opened) << "only needed for the snapshot: " << opened.status();
    EXPECT_EQ(MakeQcow2AllocationCursor({*opened, "1"}).status().code(), StatusCode::kDataLoss);
    EXPECT_OK(MakeQcow2AllocationCursor({*opened, {}}));
  }
  ASSERT_OK_AND_ASSIGN(const auto opened, OpenBytes(BusyQcow2()));
  EXPECT_EQ(MakeQcow2LayerCursor({opened, "2"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MakeQcow2LayerCursor({opened, ""}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MakeQcow2LayerCursor({nullptr, {}}).status().code(), StatusCode::kInvalidArgument);
  Qcow2Bytes twice = BusyQcow2();
  twice.Snapshot("2", "first", 8 * kCluster, Qcow2Bytes::kSize);
  EXPECT_EQ(MakeQcow2LayerCursor({ValueOf(OpenBytes(twice)), "first"}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_OK(MakeQcow2LayerCursor({ValueOf(OpenBytes(twice)), "2"}));
}

TEST(Qcow2Test, LooksBelow) {
  Files files;
  files.Add("top", BusyQcow2(true).bytes());
  // The raw file has data in cluster 1 and clusters 4 to 11 (a page), and ends a little after 70
  // clusters. The rest is holes, in whole pages.
  std::vector<uint8_t> raw(70 * kCluster + 100, 7);
  files.Add("base", raw);
  const auto top = files.Open("top");
  ASSERT_OK(top);
  EXPECT_EQ((*top)->depth(), 2u);
  EXPECT_TRUE((*top)->has_backing());
  const uint64_t end = raw.size();
  const Ranges below = {{0, 2 * kCluster},
                        {3 * kCluster, 3 * kCluster},
                        {7 * kCluster, end - 7 * kCluster},
                        {99 * kCluster, kCluster}};
  EXPECT_EQ(ValueOf(All(MakeQcow2AllocationCursor({*top, {}}))), below);
  Qcow2Options alone = files.Options();
  alone.follow_backing = false;
  const auto cut = Qcow2Image::FromImage(files.OpenFile("top"), "", alone);
  ASSERT_OK(cut);
  EXPECT_TRUE((*cut)->has_backing());
  EXPECT_EQ(ValueOf(All(MakeQcow2LayerCursor({*cut, {}}))),
            ValueOf(All(MakeQcow2LayerCursor({*top, {}}))));
  // Clusters of a missing backing file may have data, unless the image itself has zeros there.
  EXPECT_EQ(ValueOf(All(MakeQcow2AllocationCursor({*cut, {}}))),
            Clusters({{0, 2}, {3, 3}, {7, 93}}));
  // A location in an unopened file equals itself and nothing else.
  const Ranges delta = Clusters({{1, 2}, {4, 3}, {63, 1}});
  EXPECT_EQ(ValueOf(All(MakeQcow2DeltaCursor({*cut, "1"}, {*cut, {}}))), delta);
  EXPECT_EQ(ValueOf(All(MakeQcow2DeltaCursor({*top, "1"}, {*top, {}}))), delta);
  EXPECT_EQ(ValueOf(All(MakeQcow2DeltaCursor({*top, {}}, {*cut, {}}))),
            Clusters({{4, 1}, {7, 56}, {65, 34}}));
}

TEST(Qcow2Test, RefusesBackingNames) {
  struct Case {
    const char* name;
    const char* format;
    StatusCode code;
  };
  for (const Case& wrong : std::vector<Case>{
           {"json:{\"driver\":\"raw\"}", "", StatusCode::kUnimplemented},
           {"nbd://host/export", "raw", StatusCode::kUnimplemented},
           {"nbd:unix:/socket", "raw", StatusCode::kUnimplemented},
           {"file:relative", "raw", StatusCode::kUnimplemented},
           {"file:", "raw", StatusCode::kUnimplemented},
           {"raw", "vmdk", StatusCode::kUnimplemented},
           {"raw", "qcow2", StatusCode::kInvalidArgument},
           {"vmdk", "", StatusCode::kUnimplemented},
           {"missing", "raw", StatusCode::kNotFound},
           {"image", "qcow2", StatusCode::kDataLoss},
           {"loop", "qcow2", StatusCode::kDataLoss},
           {"raw", "raw", StatusCode::kOk},
           {"raw", "", StatusCode::kOk},
           {"vmdk", "raw", StatusCode::kOk},
           {"file:/raw", "raw", StatusCode::kOk},
           {"a/with:colon/raw", "raw", StatusCode::kOk},
           {"qcow2", "", StatusCode::kOk},
       }) {
    Files files;
    files.Add("image", Qcow2Bytes().Backing(wrong.name, wrong.format).bytes());
    files.Add("loop", Qcow2Bytes().Backing("image", "qcow2").bytes());
    files.Add("raw", std::vector<uint8_t>(Qcow2Bytes::kSize, 1));
    files.Add("vmdk", {'K', 'D', 'M', 'V', 1, 0, 0, 0});
    files.Add("qcow2", BusyQcow2().bytes());
    const auto opened = files.Open("image");
    EXPECT_EQ(opened.status().code(), wrong.code) << wrong.name << " " << opened.status();
  }
  Files files;
  files.Add("image", Qcow2Bytes().Backing(std::string("a\0b", 3), "raw").bytes());
  EXPECT_EQ(files.Open("image").status().code(), StatusCode::kDataLoss);
}

// As a raw file it would be zeros past its own size, and the data in it left out.
TEST(Qcow2Test, SCADamagedBackingFileIsNoRawVolume) {
  const std::vector<uint8_t> sound = BusyQcow2().bytes();
  std::vector<uint8_t> damaged = sound;
  std::fill_n(damaged.begin(), kCluster, uint8_t{0});
  std::vector<uint8_t> as_large = damaged;
  as_large.resize(Qcow2Bytes::kSize);
  const std::vector<uint8_t> volume(Qcow2Bytes::kSize, 7);
  const struct {
    const char* name;
    const char* format;
    std::vector<uint8_t> bytes;
    StatusCode code;
  } cases[] = {
      {"base.qcow2", "", sound, StatusCode::kOk},
      {"base.qcow2", "", damaged, StatusCode::kFailedPrecondition},
      {"base.qcow2", "", as_large, StatusCode::kFailedPrecondition},
      {"base.QCOW2", "", as_large, StatusCode::kFailedPrecondition},
      {"base.qcow2", "qcow2", damaged, StatusCode::kInvalidArgument},
      {"base.qcow2", "raw", damaged, StatusCode::kOk},
      {"base.vmdk", "", as_large, StatusCode::kFailedPrecondition},
      {"base", "", damaged, StatusCode::kFailedPrecondition},
      {"base.img", "", damaged, StatusCode::kFailedPrecondition},
      {"base.img", "", volume, StatusCode::kOk},
      {"base.2024", "", volume, StatusCode::kOk},
      {"base.img", "", std::vector<uint8_t>(Qcow2Bytes::kSize - 512, 7),
       StatusCode::kFailedPrecondition},
      {"base.img", "raw", std::vector<uint8_t>(Qcow2Bytes::kSize - 512, 7), StatusCode::kOk},
  };
  for (const auto& [name, format, bytes, code] : cases) {
    Files files;
    files.Add("top", Qcow2Bytes().Backing(name, format).bytes());
    files.Add(name, bytes);
    const absl::Status status = files.Open("top").status();
    EXPECT_EQ(status.code(), code) << name << " " << bytes.size() << ": " << status;
    if (code == StatusCode::kFailedPrecondition) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("rebase -u -F raw")) << name;
    }
    Qcow2Options alone = files.Options();
    alone.follow_backing = false;
    EXPECT_OK(Qcow2Image::FromImage(files.OpenFile("top"), "", alone)) << name;
  }
}

TEST(Qcow2Test, KeepsToTheDepth) {
  Files files;
  for (int i = 0; i < 20; ++i) {
    files.Add(std::to_string(i), Qcow2Bytes().Backing(std::to_string(i + 1), "qcow2").bytes());
  }
  files.Add("20", BusyQcow2().bytes());
  for (const uint64_t depth : {0U, 1U, 20U, 21U, 5000U}) {
    Qcow2Options options = files.Options();
    options.max_depth = depth;
    const auto opened = Qcow2Image::FromImage(files.OpenFile("0"), "", options);
    EXPECT_EQ(opened.ok(), depth == 21) << depth << opened.status();
    if (!opened.ok()) continue;
    EXPECT_EQ(ValueOf(All(MakeQcow2AllocationCursor({*opened, {}}))),
              Clusters({{0, 2}, {3, 1}, {5, 1}, {63, 2}, {99, 1}}));
    EXPECT_EQ(ValueOf(All(MakeQcow2DeltaCursor({ValueOf(files.Open("20")), {}}, {*opened, {}}))),
              Ranges());
    EXPECT_EQ(ValueOf(All(MakeQcow2LayerCursor({*opened, {}}))), Ranges());
  }
}

TEST(Qcow2Test, TellsThatAFileChanged) {
  Files files;
  files.Add("top", BusyQcow2(true).bytes());
  files.Add("base", std::vector<uint8_t>(Qcow2Bytes::kSize, 7));
  for (const char* changed : {"top", "base"}) {
    const auto top = files.Open("top");
    ASSERT_OK(top);
    const Qcow2State active = {*top, {}};
    std::vector<Cursor> cursors;
    cursors.push_back(MakeQcow2AllocationCursor(active));
    cursors.push_back(MakeQcow2DeltaCursor({*top, "1"}, active));
    if (std::string(changed) == "top") {
      cursors.push_back(MakeQcow2LayerCursor(active));
      cursors.push_back(MakeQcow2BitmapCursor(*top, "changes"));
    }
    files[changed].Resize(30 * kCluster);
    for (const Cursor& cursor : cursors) {
      EXPECT_EQ(Drain(**cursor).status().code(), StatusCode::kAborted);
    }
    files[changed].Resize(Qcow2Bytes::kSize);
  }
}

TEST(Qcow2Test, RefusesImagesThatAreOpenForWriting) {
  const test::TempDir directory;
  directory.Write("image", BusyQcow2().text());
  ASSERT_OK(Qcow2Image::Open(directory / "image"));
  const int descriptor = ::open((directory / "image").c_str(), O_RDWR);
  ASSERT_GE(descriptor, 0);
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 101;
  lock.l_len = 1;
  ASSERT_EQ(::fcntl(descriptor, F_OFD_SETLK, &lock), 0);
  EXPECT_EQ(Qcow2Image::Open(directory / "image").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_OK(Qcow2Image::Open(directory / "image", {.allow_writer = true}));
  ::close(descriptor);
  EXPECT_OK(Qcow2Image::Open(directory / "image"));
}

TEST(Qcow2Test, KnowsTheMagicNumber) {
  EXPECT_TRUE(LooksLikeQcow2(Qcow2Bytes().bytes()));
  const uint8_t bytes[] = {'Q', 'F', 'I', 0xfb};
  EXPECT_TRUE(LooksLikeQcow2(bytes));
  EXPECT_FALSE(LooksLikeQcow2({bytes, 3}));
  EXPECT_FALSE(LooksLikeQcow2({}));
}

// Found by the fuzzer: a zero-length read into a null buffer.
TEST(Qcow2Test, HasNoRoomForExtensions) {
  Files files;
  files.Add("base", std::vector<uint8_t>(Qcow2Bytes::kSize));
  files.Add("top", Qcow2Bytes().Backing("base", "").Put(104, "base").Put(8, 8, 104).bytes());
  const auto opened = files.Open("top");
  ASSERT_OK(opened);
  EXPECT_EQ((*opened)->depth(), 2u);
}

TEST(Qcow2Test, HasADirectoryWithoutRoom) {
  Qcow2Bytes image = BusyQcow2();
  image.Put(120, 8, 0);
  EXPECT_EQ(ValueOf(OpenBytes(image))->ListBitmaps().status().code(), StatusCode::kDataLoss);
}

// Opens every cursor on an image: nothing may crash, hang or answer inconsistently.
void RunAll(const std::vector<uint8_t>& bytes) {
  Files files;
  files.Add("image", bytes);
  files.Add("base", std::vector<uint8_t>(5000, 1));
  const auto image = files.Open("image");
  if (!image.ok()) return;
  std::vector<std::optional<std::string>> snapshots = {std::nullopt};
  for (const auto& snapshot : (*image)->snapshots()) snapshots.emplace_back(snapshot.id);
  std::vector<Cursor> cursors;
  for (const auto& snapshot : snapshots) {
    cursors.push_back(MakeQcow2AllocationCursor({*image, snapshot}));
    cursors.push_back(MakeQcow2LayerCursor({*image, snapshot}));
    cursors.push_back(MakeQcow2DeltaCursor({*image, {}}, {*image, snapshot}));
  }
  const auto bitmaps = (*image)->ListBitmaps();
  if (bitmaps.ok()) {
    for (const auto& bitmap : *bitmaps) {
      cursors.push_back(MakeQcow2BitmapCursor(*image, bitmap.name));
    }
  }
  ExtentBatch batch;
  for (const Cursor& cursor : cursors) {
    if (!cursor.ok()) continue;
    for (int calls = 0; calls < 20; ++calls) {
      const auto step = (*cursor)->Next(batch);
      ASSERT_NE(step.status().code(), StatusCode::kInternal) << step.status();
      if (!step.ok() || *step == Step::kComplete) break;
    }
  }
}

TEST(Qcow2Test, SurvivesEveryLength) {
  const std::vector<uint8_t> bytes = BusyQcow2(true).bytes();
  for (size_t length = 0; length < bytes.size(); length += length < 600 ? 1 : 37) {
    RunAll({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)});
  }
}

TEST(Qcow2Test, SurvivesEveryByte) {
  for (const bool with_backing : {false, true}) {
    const std::vector<uint8_t> bytes = BusyQcow2(with_backing).bytes();
    for (size_t i = 0; i < 18 * kCluster; ++i) {
      if (i >= 300 && bytes[i] == 0 && i % 8 != 0) continue;
      for (const int value : {0, 0xff, bytes[i] ^ 1, bytes[i] ^ 0x80}) {
        std::vector<uint8_t> changed = bytes;
        changed[i] = static_cast<uint8_t>(value);
        RunAll(changed);
      }
    }
  }
}

TEST(Qcow2Test, SurvivesRandomBytes) {
  test::SeededRandom random(1);
  const std::vector<uint8_t> bytes = BusyQcow2(true).bytes();
  for (int round = 0; round < 5000; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    std::vector<uint8_t> changed = bytes;
    for (uint64_t i = 1 + random() % 8; i > 0; --i) {
      const size_t limit = random() % 2 == 0 ? 304 : 18 * kCluster;
      changed[random() % limit] = static_cast<uint8_t>(random());
    }
    if (random() % 8 == 0) changed.resize(random() % changed.size());
    RunAll(changed);
  }
}

}  // namespace qcow2_test
}  // namespace cbt
