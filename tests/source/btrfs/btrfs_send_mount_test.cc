// Real streams of real subvolumes, compared with all bytes of the files.
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cbt/source/btrfs_send.h"
#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/loop_mount.h"
#include "tests/support/properties.h"
#include "tests/support/real_file.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace btrfs_send_mount_test {

using reference::ByteSet;
using test::BytesIn;
using test::IsSubset;
using test::LoopMount;
using test::RealFile;
using test::ValueOf;

class BtrfsSendMountTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!mount_.mounted()) GTEST_SKIP() << mount_.why_not();
    ASSERT_TRUE(Run("btrfs subvolume create vol"));
  }

  bool Run(const std::string& command) {
    const bool ok = mount_.shell().Run("cd '" + mount_.path() + "' && " + command);
    EXPECT_TRUE(ok) << command << ": " << mount_.shell().Output();
    return ok;
  }

  bool Snapshot(const std::string& name) { return Run("btrfs subvolume snapshot -r vol " + name); }

  // The map of the stream that `btrfs send` writes with `arguments`.
  absl::StatusOr<ChangeMap> Send(const std::string& arguments, const BtrfsSendOptions& options) {
    if (!Run("btrfs send " + arguments + " > stream")) return absl::InternalError("btrfs send");
    return ReadBtrfsSend(*ValueOf(OpenByteStream(mount_ / "stream")), options);
  }

  std::string PathOf(const std::string& name) { return mount_ / name; }

  LoopMount mount_{{.mkfs = "mkfs.btrfs -q"}};
};

ByteSet BytesOf(const ChangeMap& map) {
  return reference::BytesOf(test::RangesOf(map), static_cast<size_t>(map->capacity()));
}

// Read-only snapshots cannot be opened for writing.
std::vector<uint8_t> BytesIn(const std::string& path) {
  const auto image = ValueOf(Image::Open(path));
  std::vector<uint8_t> bytes(static_cast<size_t>(image->size()));
  EXPECT_OK(image->Read(0, bytes.size(), bytes.data()));
  return bytes;
}

TEST_F(BtrfsSendMountTest, NothingThatChangedIsMissing) {
  test::SeededRandom random(1);
  std::filesystem::create_directories(PathOf("vol/images/deep"));
  std::string name = "images/deep/disk.img";
  {
    const RealFile file(PathOf("vol/" + name));
    file.Resize(test::kScribbledSize);
    file.Write(kMiB, test::RandomData(2 * kMiB, false, random));
    test::Scribble(file, file, 20, random);
    const RealFile other(PathOf("vol/other"));
    other.Write(0, test::RandomData(kMiB, false, random));
  }
  ASSERT_TRUE(Snapshot("s0"));
  for (int round = 1; round <= 9; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const std::string before_name = name;
    {
      const RealFile file(PathOf("vol/" + name));
      const RealFile other(PathOf("vol/other"));
      if (round != 2) test::Scribble(file, other, 8, random);
      if (round == 3) file.Resize(test::kScribbledSize + 700'000);
      if (round == 4) file.Resize(test::kScribbledSize - 700'000);
      if (round == 5) {
        file.Resize(2'000'000);
        file.Resize(test::kScribbledSize);
        file.Write(4'000'000, test::RandomData(5000, false, random));
      }
      if (round > 1) other.Write(random() % 100'000, test::RandomData(5000, false, random));
    }
    if (round == 6) {
      ASSERT_TRUE(Run("mv vol/images vol/moved && mkdir vol/images && mv vol/moved vol/images/x"));
      name = "images/x/deep/disk.img";
    }
    if (round == 7) {
      ASSERT_TRUE(Run("ln vol/" + name + " vol/linked && rm vol/" + name));
      name = "linked";
    }
    if (round == 8) {
      // Replaced by another file that is mostly a hole now.
      ASSERT_TRUE(Run("truncate -s 6M vol/new && echo x >> vol/new && mv vol/new vol/" + name));
    }
    const std::string base = absl::StrCat("s", round - 1);
    const std::string target = absl::StrCat("s", round);
    ASSERT_TRUE(Snapshot(target));
    const auto old_bytes = BytesIn(PathOf(base + "/" + before_name));
    const auto new_bytes = BytesIn(PathOf(target + "/" + name));
    const ByteSet truth = reference::ChangedBytes(old_bytes, new_bytes, 4096);
    BtrfsSendOptions options{.path = name, .base_path = before_name};
    options.capacity = new_bytes.size();
    // In the second round the stream only names the other file.
    options.single_name = round == 2;
    options.path_exists = round == 2;
    for (const char* mode :
         {"--no-data", "", "--proto 2 --compressed-data", "--proto 2 --no-data"}) {
      const auto map = Send(absl::StrCat(mode, " -p ", base, " ", target), options);
      ASSERT_OK(map) << mode << ": " << map.status();
      const ByteSet got = BytesOf(*map);
      ASSERT_EQ(got.size(), new_bytes.size());
      EXPECT_TRUE(IsSubset(truth, got)) << mode;
      if (round == 8) {
        EXPECT_EQ(test::BytesIn(got), got.size());
      } else if (round == 2) {
        EXPECT_EQ(test::BytesIn(got), 0);
      } else if (round != 5) {
        EXPECT_LT(test::BytesIn(got), got.size() / 3) << mode;
      }
      EXPECT_EQ(map->identity().target, target);
    }
    const auto written = Send("--no-data " + target, {.path = name});
    ASSERT_OK(written);
    const ByteSet got = BytesOf(*written);
    ASSERT_EQ(got.size(), new_bytes.size());
    EXPECT_TRUE(IsSubset(reference::ChangedBytes({}, new_bytes, 4096), got));
  }
}

// Holes that are punched in blocks allocated past the end of a file say nothing about its size.
TEST_F(BtrfsSendMountTest, SEAHolePastTheEndIsNoGrowth) {
  test::SeededRandom random(4);
  const std::string name = "disk.img";
  const RealFile file(PathOf("vol/" + name));
  file.Write(0, test::RandomData(kMiB, false, random));
  ASSERT_TRUE(Run("fallocate --keep-size --offset 0 --length 8M vol/" + name));
  ASSERT_TRUE(Snapshot("s0"));
  ASSERT_TRUE(Run("fallocate --punch-hole --offset 768K --length 4M vol/" + name));
  ASSERT_TRUE(Snapshot("s1"));
  const ByteSet truth =
      reference::ChangedBytes(BytesIn(PathOf("s0/" + name)), BytesIn(PathOf("s1/" + name)), 4096);
  EXPECT_EQ(test::BytesIn(truth), 256 * kKiB);
  for (const char* mode : {"--no-data", "", "--proto 2", "--proto 2 --no-data"}) {
    const auto map = Send(absl::StrCat(mode, " -p s0 s1"), {.path = name, .capacity = kMiB});
    ASSERT_OK(map) << mode << ": " << map.status();
    EXPECT_TRUE(IsSubset(truth, BytesOf(*map))) << mode;
  }
}

// The stream uses a file's first name; the caller asks for the second.
TEST_F(BtrfsSendMountTest, HardLinksAreNotOverlooked) {
  test::SeededRandom random(2);
  const RealFile file(PathOf("vol/a"));
  file.Write(0, test::RandomData(kMiB, false, random));
  ASSERT_TRUE(Run("ln vol/a vol/b"));
  ASSERT_TRUE(Snapshot("s0"));
  file.Write(8192, test::RandomData(4096, false, random));
  ASSERT_TRUE(Snapshot("s1"));
  int found = 0;
  for (const char* name : {"a", "b"}) {
    const auto map = Send("--no-data -p s0 s1", {.path = name, .capacity = kMiB});
    if (map.ok()) {
      EXPECT_TRUE(map->view().Contains(2));
      ++found;
    } else {
      EXPECT_EQ(map.status().code(), absl::StatusCode::kFailedPrecondition);
    }
  }
  EXPECT_EQ(found, 1);
}

// A stream contains nothing of a nested subvolume.
TEST_F(BtrfsSendMountTest, NestedSubvolumesAreNotCalledUnchanged) {
  ASSERT_TRUE(Run("btrfs subvolume create vol/nested && echo one > vol/nested/disk.img"));
  ASSERT_TRUE(Snapshot("s0"));
  ASSERT_TRUE(Run("echo two > vol/nested/disk.img"));
  ASSERT_TRUE(Snapshot("s1"));
  const auto map =
      Send("--no-data -p s0 s1", {.path = "nested/disk.img", .capacity = 4, .single_name = true});
  EXPECT_EQ(map.status().code(), absl::StatusCode::kFailedPrecondition) << map.status();
}

}  // namespace btrfs_send_mount_test
}  // namespace cbt
