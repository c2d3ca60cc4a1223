// What the directory provider makes of files that name sources beside images.
#include "source/volume_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cbt/change_map_file.h"
#include "cbt/directory_provider.h"
#include "map/maps.h"
#include "support/cursors.h"
#include "support/temp_dir.h"

namespace cbt {
namespace {

using absl::StatusCode;
using reference::Ranges;
using testing::HasSubstr;

class VolumeSourcesTest : public testing::Test {
 protected:
  VolumeSourcesTest() {
    std::filesystem::create_directories(dir_ / "root/vol");
    Write(".list.json",
          R"([{"offset":4096,"length":100,"exists":"true"},{"offset":65536,"length":4096}])");
    Write("delta.source",
          "# what changed\nbase monday\ntarget tuesday\n"
          "address .list.json\nfrom rbd-json\ncapacity 1M\n");
    provider_ = *MakeDirectoryProvider(dir_ / "root");
  }

  void Write(const std::string& name, const std::string& text) {
    dir_.Write("root/vol/" + name, text);
  }
  absl::StatusOr<Ranges> Delta(const std::string& base, const std::string& target) {
    return Read(provider_->OpenDelta("vol/" + base, "vol/" + target, context_));
  }
  absl::StatusOr<Ranges> Allocated(const std::string& target) {
    return Read(provider_->OpenAllocated("vol/" + target, context_));
  }
  static absl::StatusOr<Ranges> Read(absl::StatusOr<MetadataSource> source) {
    if (!source.ok()) return source.status();
    return test::Drain(*source->cursor);
  }

  const test::TempDir dir_;
  const Secrets secrets_;
  const StreamContext context_{{}, secrets_};
  std::unique_ptr<SnapshotProvider> provider_;
};

const Ranges kListed = {{4096, 4096}, {65536, 4096}};

TEST_F(VolumeSourcesTest, TellsWithoutAnyImage) {
  EXPECT_EQ(*Delta("monday", "tuesday"), kListed);
  EXPECT_EQ(Delta("tuesday", "monday").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Delta("monday", "friday").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Allocated("tuesday").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(VolumeSourcesTest, TellsBesideImagesOfTheSameSize) {
  Write("monday.img", std::string(1 << 20, 'm'));
  Write("tuesday.img", std::string(1 << 20, 't'));
  EXPECT_EQ(*Delta("monday", "tuesday"), kListed);
  Write("tuesday.img", std::string(1 << 19, 't'));
  const absl::Status status = Delta("monday", "tuesday").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("524288"));
}

TEST_F(VolumeSourcesTest, AllocationToo) {
  Write("alloc.source", "target tuesday\naddress .list.json\nfrom rbd-json\ncapacity 1M\n");
  EXPECT_EQ(*Allocated("tuesday"), kListed);
}

// Where images tell, a source that can't be used is no reason to tell nothing.
TEST_F(VolumeSourcesTest, BrokenOnesAreNotReadAsNothing) {
  Write("monday.img", std::string(8192, 'm'));
  Write("wednesday.img", std::string(8192, 'w'));
  Write("broken.source", "target tuesday\nbase sunday\nadress x\n");
  EXPECT_EQ(*Delta("monday", "wednesday"), (Ranges{{0, 8192}}));
  const absl::Status status = Delta("sunday", "tuesday").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("broken.source: line 3"));
}

TEST_F(VolumeSourcesTest, WhatCannotBeOpenedIsNotReadAsNothing) {
  EXPECT_EQ(Delta("sunday", "tuesday").status().code(), StatusCode::kNotFound);
  dir_.WriteClosed("root/vol/closed.source");
  const absl::Status status = Delta("sunday", "tuesday").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("closed.source: "));
  EXPECT_EQ(*Delta("monday", "tuesday"), kListed);
}

TEST_F(VolumeSourcesTest, DamagedListsAndDoubleOnesAreErrors) {
  Write(".list.json", R"([{"offset":4096,"length":100,"exists":"true"},{"off)");
  EXPECT_EQ(Delta("monday", "tuesday").status().code(), StatusCode::kFailedPrecondition);
  Write(".list.json", "[]");
  EXPECT_EQ(*Delta("monday", "tuesday"), Ranges{});
  Write("again.source", "base monday\ntarget tuesday\naddress .list.json\n");
  EXPECT_THAT(std::string(Delta("monday", "tuesday").status().message()),
              HasSubstr("about the same snapshots"));
}

// Emptied, cut or in another encoding: as an image, it would tell of a tiny volume.
TEST_F(VolumeSourcesTest, E14AnEmptyListIsNoVolume) {
  Write("alloc.source", "target monday\naddress .blocks.json\n");
  const std::string list =
      R"({"BlockSize":524288,"VolumeSize":1,"Blocks":[{"BlockIndex":1},{"BlockIndex":2}]})";
  Write(".blocks.json", list);
  EXPECT_EQ(*Allocated("monday"), (Ranges{{524288, 1048576}}));
  std::string wide;
  for (const char c : list) wide += {c, '\0'};
  std::vector<std::string> broken = {"\xff\xfe" + wide,    wide, "\xef\xbb\xbf" + list, " \n", "x",
                                     std::string(512, ' ')};
  for (size_t size = 0; size < list.size(); ++size) broken.push_back(list.substr(0, size));
  for (const std::string& text : broken) {
    Write(".blocks.json", text);
    const absl::Status status = Allocated("monday").status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("alloc.source"));
  }
  // What is no list by any look is an image only for those who say so.
  Write(".blocks.json", std::string(4096, '\1'));
  EXPECT_THAT(std::string(Allocated("monday").status().message()), HasSubstr("name the format"));
  Write("alloc.source", "target monday\naddress .blocks.json\nfrom image\n");
  EXPECT_EQ(*Allocated("monday"), (Ranges{{0, 4096}}));
}

// Cut at a line's end, a file can be whole by its look: of this one, no such beginning is.
TEST_F(VolumeSourcesTest, E14NoBeginningOfAFileAnswers) {
  Write(".bits", std::string("\x03\x80", 2));
  // The first as the documentation has it: nothing is whole before the address.
  for (const std::string text :
       {"base monday\ntarget tuesday\nfrom bitmap:granularity=4K,order=msb\ncapacity 64K\n"
        "address .bits\n",
        "base monday\ntarget tuesday\naddress .bits\ncapacity 64K\n"
        "from bitmap:granularity=4K,order=msb\n"}) {
    for (size_t size = 0; size <= text.size(); ++size) {
      Write("delta.source", text.substr(0, size));
      const auto delta = Delta("monday", "tuesday");
      EXPECT_EQ(Allocated("tuesday").status().code(), StatusCode::kFailedPrecondition) << size;
      if (size == text.size()) {
        ASSERT_TRUE(delta.ok()) << delta.status();
        EXPECT_EQ(*delta, (Ranges{{24576, 12288}}));
      } else {
        EXPECT_EQ(delta.status().code(), StatusCode::kFailedPrecondition) << size;
      }
      if (size > 0 && text[size - 1] != '\n') {
        EXPECT_THAT(std::string(delta.status().message()), HasSubstr("the last line has no end"));
      }
    }
  }
}

TEST_F(VolumeSourcesTest, AKeyTwiceIsRefused) {
  const std::string text =
      "base monday\ntarget tuesday\naddress .list.json\nfrom rbd-json\ncapacity 1M\n"
      "base-capacity 1M\n";
  Write("delta.source", text);
  EXPECT_EQ(*Delta("monday", "tuesday"), kListed);
  for (const char* const more : {"base monday", "base sunday", "target tuesday", "address x",
                                 "from rbd-json", "capacity 1M", "base-capacity 2M"}) {
    Write("delta.source", text + more + "\n");
    const absl::Status status = Delta("monday", "tuesday").status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << more;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 7: expected each key once"));
  }
}

// From a later base it would lack what changed between the two.
TEST_F(VolumeSourcesTest, AListOfOtherSnapshotsIsRefused) {
  ChangeMap map = test::MapOf({1}, {1 << 20, 4096});
  map.set_identity({"vol", "monday", "tuesday"});
  ASSERT_TRUE(WriteChangeMap(map, dir_ / "root/vol/.listed").ok());
  Write("delta.source", "base monday\ntarget tuesday\naddress .listed\n");
  EXPECT_EQ(*Delta("monday", "tuesday"), (Ranges{{4096, 4096}}));
  // The storage's own names: the file says which snapshots they are.
  Write("delta.source", "base s1\ntarget s2\naddress .listed\n");
  EXPECT_EQ(*Delta("s1", "s2"), (Ranges{{4096, 4096}}));
  // Names of snapshots that are known here, by an image or by a list.
  Write("monday.img", std::string(1 << 20, 'm'));
  EXPECT_THAT(std::string(Delta("s1", "s2").status().message()),
              HasSubstr("delta.source: .listed names the base \"monday\", not \"s1\""));
  Write("delta.source", "base monday\ntarget s2\naddress .listed\n");
  EXPECT_EQ(*Delta("monday", "s2"), (Ranges{{4096, 4096}}));
  Write("other.source", "target tuesday\naddress .list.json\nfrom rbd-json\ncapacity 1M\n");
  const absl::Status status = Delta("monday", "s2").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the target \"tuesday\", not \"s2\""));
  // Named by ids, and of another volume.
  map.set_identity({"vol", "vol/monday", "vol/s2"});
  ASSERT_TRUE(WriteChangeMap(map, dir_ / "root/vol/.listed").ok());
  EXPECT_EQ(*Delta("monday", "s2"), (Ranges{{4096, 4096}}));
  map.set_identity({"vol", "vol/tuesday", "s2"});
  ASSERT_TRUE(WriteChangeMap(map, dir_ / "root/vol/.listed").ok());
  EXPECT_THAT(std::string(Delta("monday", "s2").status().message()),
              HasSubstr("the base \"vol/tuesday\", not \"monday\""));
  map.set_identity({"other", "monday", "s2"});
  ASSERT_TRUE(WriteChangeMap(map, dir_ / "root/vol/.listed").ok());
  EXPECT_THAT(std::string(Delta("monday", "s2").status().message()),
              HasSubstr(".listed is a map of the volume \"other\""));
}

TEST_F(VolumeSourcesTest, NothingOutsideOfTheRootIsRead) {
  dir_.Write("outside.json", "[]");
  for (const std::string& address :
       {dir_ / "outside.json", std::string("../../outside.json"), std::string("-")}) {
    Write("delta.source",
          "base monday\ntarget tuesday\naddress " + address + "\nfrom rbd-json\ncapacity 1M\n");
    EXPECT_EQ(Delta("monday", "tuesday").status().code(), StatusCode::kFailedPrecondition)
        << address;
  }
}

TEST_F(VolumeSourcesTest, Qcow2ImagesAreReadAsSuch) {
  const std::string folder = dir_ / "root/vol";
  const auto sh = [](const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str());  // NOLINT: a test's own words
  };
  if (sh("command -v qemu-img && command -v qemu-io") != 0) GTEST_SKIP() << "no qemu-img";
  ASSERT_EQ(sh("cd '" + folder +
               "' && qemu-img create -f qcow2 base.qcow2 4M && qemu-io -c "
               "'write 0 128k' base.qcow2 && qemu-img create -f qcow2 -b base.qcow2 -F qcow2 "
               "top.qcow2 && qemu-io -c 'write 1M 64k' top.qcow2"),
            0);
  EXPECT_EQ(*Allocated("base"), (Ranges{{0, 131072}}));
  EXPECT_EQ(*Allocated("top"), (Ranges{{0, 131072}, {1 << 20, 65536}}));
  EXPECT_EQ(*Delta("base", "top"), (Ranges{{1 << 20, 65536}}));
  Write("raw.img", std::string(1 << 20, 'r'));
  EXPECT_EQ(Delta("raw", "top").status().code(), StatusCode::kFailedPrecondition);
  // A backing file that lies outside.
  ASSERT_EQ(sh("cd '" + folder +
               "' && mv base.qcow2 ../../ && qemu-img rebase -u -F qcow2 -b "
               "../../base.qcow2 top.qcow2"),
            0);
  EXPECT_EQ(Allocated("top").status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cbt
