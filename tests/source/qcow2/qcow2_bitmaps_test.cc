// Persistent dirty bitmaps as qemu writes them.
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cbt/source/qcow2.h"
#include "cbt/units.h"
#include "tests/support/child_process.h"
#include "tests/support/cursors.h"
#include "tests/support/seeded_random.h"
#include "tests/support/shell.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace qcow2_bitmaps_test {

using absl::StatusCode;
using reference::Ranges;
using test::Drain;
using test::DrainFrom;
using test::Shell;

class Qcow2BitmapsTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_ / name; }

  // A file of tests/source/samples, unpacked.
  absl::StatusOr<std::shared_ptr<const Qcow2Image>> Sample(const std::string& name) {
    if (!Shell("gzip -dc " CBT_SAMPLES "/" + name + ".gz > " + Path(name))) {
      return absl::InternalError("no gzip");
    }
    return Qcow2Image::Open(Path(name));
  }

  Ranges All(const std::shared_ptr<const Qcow2Image>& image, const std::string& name) {
    const auto cursor = MakeQcow2BitmapCursor(image, name);
    EXPECT_OK(cursor);
    if (!cursor.ok()) return {};
    const auto all = Drain(**cursor, 1000);
    EXPECT_OK(all);
    if (!all.ok()) return {};
    const uint64_t capacity = (*cursor)->capacity();
    for (int i = 0; i < 50; ++i) {
      uint64_t offset = random_() % capacity;
      if (!all->empty() && i % 2 == 0) {
        offset = std::min(capacity - 1, (*all)[random_() % all->size()].first + random_() % 8192);
      }
      const auto rest = DrainFrom(**cursor, offset, 1 + random_() % 9);
      EXPECT_OK(rest) << "from " << offset;
      if (!rest.ok()) return {};
      EXPECT_EQ(*rest, reference::CutAt(*all, AlignDown(offset, (*cursor)->granularity())))
          << "from " << offset;
    }
    return *all;
  }

  const test::TempDir directory_;
  test::SeededRandom random_{7};
};

TEST_F(Qcow2BitmapsTest, SampleWithThree) {
  const auto image = Sample("qcow2_two_bitmaps");
  ASSERT_OK(image);
  const auto bitmaps = (*image)->ListBitmaps();
  ASSERT_OK(bitmaps);
  ASSERT_EQ(bitmaps->size(), 3u);
  EXPECT_EQ((*bitmaps)[0].name, "b0");
  EXPECT_EQ((*bitmaps)[0].granularity, 65536u);
  EXPECT_EQ((*bitmaps)[1].name, "b1");
  EXPECT_EQ((*bitmaps)[1].granularity, 4096u);
  EXPECT_EQ((*bitmaps)[2].name, "m");
  for (const Qcow2Bitmap& bitmap : *bitmaps) {
    EXPECT_FALSE(bitmap.in_use);
    EXPECT_TRUE(bitmap.enabled);
  }
  // The bytes 03 00 01 00 03 00 .. ff ff of the first one.
  const Ranges first = {{0, 131072}, {1048576, 65536}, {2097152, 131072}, {15728640, 1048576}};
  EXPECT_EQ(All(*image, "b0"), first);
}

TEST_F(Qcow2BitmapsTest, SampleOfOneThatWasNotSaved) {
  const auto image = Sample("qcow2_bitmaps_in_use");
  ASSERT_OK(image);
  const auto bitmaps = (*image)->ListBitmaps();
  ASSERT_OK(bitmaps);
  ASSERT_EQ(bitmaps->size(), 2u);
  for (const Qcow2Bitmap& bitmap : *bitmaps) {
    EXPECT_TRUE(bitmap.in_use);
    EXPECT_EQ(MakeQcow2BitmapCursor(*image, bitmap.name).status().code(),
              StatusCode::kFailedPrecondition);
  }
}

TEST_F(Qcow2BitmapsTest, WhatWasWritten) {
  if (!Shell("qemu-img --version") || !Shell("qemu-io --version")) {
    GTEST_SKIP() << "qemu-img and qemu-io are not installed";
  }
  struct Shape {
    const char* cluster;
    uint64_t size;
    std::vector<uint64_t> granularities;
  };
  for (const Shape& shape : std::vector<Shape>{
           {"512", 3 * kMiB + 1024, {512, 4096, 65536, uint64_t{1} << 31}},
           // More than one bitmap cluster, more than one window of its table.
           {"4k", 9 * kGiB + 512, {512, 1024, kMiB}},
           {"64k", 40 * kGiB, {512, 65536}},
           {"2M", 40 * kGiB + 2048, {512, 65536}},
       }) {
    const std::string image = Path("image");
    const std::string size = std::to_string(shape.size);
    ASSERT_TRUE(Shell("qemu-img create -f qcow2 -o cluster_size=" + std::string(shape.cluster) +
                      " " + image + " " + size));
    for (const uint64_t granularity : shape.granularities) {
      const std::string text = std::to_string(granularity);
      ASSERT_TRUE(Shell("qemu-img bitmap --add -g " + text + " " + image + " g" + text));
    }
    ASSERT_TRUE(Shell("qemu-img bitmap --add --disable " + image + " off"));
    // Random writes, some at the end.
    std::vector<std::pair<uint64_t, uint64_t>> writes;
    std::string command = "qemu-io -f qcow2 " + image;
    for (int i = 0; i < 40; ++i) {
      const uint64_t length = (1 + random_() % 40) * 512;
      uint64_t offset = random_() % (shape.size - length) / 512 * 512;
      if (i == 0) offset = shape.size - length;
      if (i == 1) offset = 0;
      if (i > 30) offset = std::min(writes.back().first + 65536, shape.size - length);
      writes.emplace_back(offset, length);
      const bool zeros = i % 5 == 2;
      command += zeros ? " -c 'write -z " : " -c 'write ";
      command += std::to_string(offset) + " " + std::to_string(length) + "'";
    }
    ASSERT_TRUE(Shell(command));
    const auto opened = Qcow2Image::Open(image);
    ASSERT_OK(opened);
    for (const uint64_t granularity : shape.granularities) {
      std::vector<std::pair<uint64_t, uint64_t>> blocks;
      for (const auto& [offset, length] : writes) {
        blocks.emplace_back(AlignDown(offset, granularity),
                            std::min(AlignUp(offset + length, granularity), shape.size));
      }
      std::sort(blocks.begin(), blocks.end());
      Ranges expected;
      for (const auto& [begin, end] : blocks) {
        if (!expected.empty() && begin <= expected.back().first + expected.back().second) {
          expected.back().second = std::max(expected.back().second, end - expected.back().first);
        } else {
          expected.emplace_back(begin, end - begin);
        }
      }
      EXPECT_EQ(All(*opened, absl::StrCat("g", granularity)), expected)
          << shape.cluster << " " << granularity;
    }
    EXPECT_EQ(All(*opened, "off"), Ranges());
    EXPECT_FALSE(test::ValueOf((*opened)->ListBitmaps()).back().enabled);
    // Bitmaps are in use while the image is open for writing, and after a crash.
    ASSERT_FALSE(Shell("qemu-io -f qcow2 -c 'write 0 512' -c 'sigraise 9' " + image));
    const auto crashed = Qcow2Image::Open(image);
    ASSERT_OK(crashed);
    EXPECT_EQ(MakeQcow2BitmapCursor(*crashed, "g512").status().code(),
              StatusCode::kFailedPrecondition);
  }
}

// Bitmaps lie in the image itself, whatever holds its data.
TEST_F(Qcow2BitmapsTest, SHBitmapsOfAnImageWithAnExternalDataFile) {
  if (test::FindProgram("qemu-img").empty()) GTEST_SKIP() << "no qemu-img";
  for (const char* raw : {"on", "off"}) {
    SCOPED_TRACE(raw);
    const std::string image = Path(absl::StrCat("external-", raw, ".qcow2"));
    ASSERT_TRUE(Shell(absl::StrCat("qemu-img create -q -f qcow2 -o data_file=", Path("data.raw"),
                                   ",data_file_raw=", raw, " ", image, " 64M")));
    ASSERT_TRUE(Shell("qemu-img bitmap --add -g 64K " + image + " b0"));
    ASSERT_TRUE(Shell("qemu-io -f qcow2 -c 'write 1M 64k' -c 'write 8M 1' " + image));
    // KubeVirt's data files belong to the storage; they need not be there.
    std::filesystem::remove(Path("data.raw"));
    const auto opened = Qcow2Image::Open(image);
    ASSERT_OK(opened);
    EXPECT_EQ(All(*opened, "b0"), (Ranges{{kMiB, 65536}, {8 * kMiB, 65536}}));
    // What the image says of its clusters is about another file.
    for (const auto& cursor : {MakeQcow2AllocationCursor({*opened, {}}).status(),
                               MakeQcow2LayerCursor({*opened, {}}).status(),
                               MakeQcow2DeltaCursor({*opened, {}}, {*opened, {}}).status()}) {
      EXPECT_EQ(cursor.code(), StatusCode::kFailedPrecondition) << cursor;
      EXPECT_NE(cursor.message().find("external data file"), std::string::npos) << cursor;
    }
    // As a backing file, too.
    const std::string overlay = Path(absl::StrCat("overlay-", raw, ".qcow2"));
    ASSERT_TRUE(
        Shell("qemu-img create -q -u -f qcow2 -b " + image + " -F qcow2 " + overlay + " 64M"));
    const auto above = Qcow2Image::Open(overlay);
    ASSERT_OK(above);
    EXPECT_EQ(MakeQcow2AllocationCursor({*above, {}}).status().code(),
              StatusCode::kFailedPrecondition);
  }
}

// Nothing in the image shows it, so that a full backup is the only remedy: docs/reference/sources.
// If QEMU marks one day what it cut off, this test says so.
TEST_F(Qcow2BitmapsTest, SHABitmapForgetsWhatAShrinkCutOff) {
  if (test::FindProgram("qemu-img").empty()) GTEST_SKIP() << "no qemu-img";
  const std::string image = Path("shrunk.qcow2");
  ASSERT_TRUE(Shell("qemu-img create -q -f qcow2 " + image + " 64M"));
  ASSERT_TRUE(Shell("qemu-img bitmap --add -g 64K " + image + " b0"));
  ASSERT_TRUE(Shell("qemu-io -f qcow2 -c 'write 1M 64k' -c 'write 48M 64k' " + image));
  EXPECT_EQ(All(test::ValueOf(Qcow2Image::Open(image)), "b0"),
            (Ranges{{kMiB, 65536}, {48 * kMiB, 65536}}));
  for (const char* size : {"32M", "64M"}) {
    ASSERT_TRUE(Shell(absl::StrCat("qemu-img resize -q --shrink -f qcow2 ", image, " ", size)));
    const auto resized = test::ValueOf(Qcow2Image::Open(image));
    EXPECT_EQ(All(resized, "b0"), (Ranges{{kMiB, 65536}})) << size;
    // What was cut off is zeros now: a change that no bit stands for.
    const auto held = MakeQcow2AllocationCursor({resized, {}});
    ASSERT_OK(held);
    EXPECT_EQ(test::ValueOf(Drain(**held, 1000)), (Ranges{{kMiB, 65536}})) << size;
  }
}

}  // namespace qcow2_bitmaps_test
}  // namespace cbt
