// Real file systems: clones that are written, punched and cloned into, compared with all bytes.
#include <gtest/gtest.h>

#include "cbt/source/file_extents.h"
#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/loop_mount.h"
#include "tests/support/properties.h"
#include "tests/support/real_file.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace file_extents_mount_test {

using reference::ByteSet;
using reference::Ranges;
using test::LoopMount;

using test::BytesIn;
using test::IsSubset;
using test::kScribbledSize;
using test::RandomData;
using test::RealFile;
using test::Scribble;
using test::ValueOf;

struct Setting {
  std::string name;
  std::string mkfs;
  std::string mount;
  bool clones;      // supports reflinks
  bool subvolumes;  // the target is in a snapshot of the base's subvolume
};

class MountedFilesTest : public testing::TestWithParam<Setting> {};

TEST_P(MountedFilesTest, NothingThatChangedIsMissing) {
  const Setting& setting = GetParam();
  LoopMount mount({.mkfs = setting.mkfs, .mount = setting.mount});
  if (!mount.mounted()) GTEST_SKIP() << mount.why_not();
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    test::SeededRandom random(seed);
    const std::string round = std::to_string(seed);
    const std::string directory = mount / ("base" + round);
    ASSERT_TRUE(mount.shell().Run((setting.subvolumes ? "btrfs subvolume create '" : "mkdir '") +
                                  directory + "'"))
        << mount.shell().Output();
    RealFile base(directory + "/image");
    base.Resize(kScribbledSize);
    base.Write(kMiB, RandomData(2 * kMiB, seed % 2 == 0, random));
    Scribble(base, base, 30, random);

    std::string path = directory + "/clone";
    if (setting.subvolumes) {
      path = mount / ("target" + round + "/image");
      ASSERT_TRUE(mount.shell().Run("btrfs subvolume snapshot '" + directory + "' '" +
                                    mount.path() + "/target" + round + "'"))
          << mount.shell().Output();
    } else {
      ASSERT_TRUE(
          mount.shell().Run("cp --reflink=" + std::string(setting.clones ? "always" : "auto") +
                            " '" + directory + "/image' '" + path + "'"))
          << mount.shell().Output();
    }
    RealFile target(path);
    // The first rounds change only one side, and its size. Without a sync, all data is still in the
    // cache.
    if (seed > 1) Scribble(target, base, 10, random);
    if (seed > 3) Scribble(base, target, 5, random);
    if (seed == 5) target.Resize(kScribbledSize + 900'000);
    if (seed == 6) target.Resize(kScribbledSize - 900'001);

    const std::vector<uint8_t> before = base.Bytes();
    const std::vector<uint8_t> after = target.Bytes();
    EXPECT_EQ(CheckSharedPlacement(*base.Open(), *target.Open()).ok(), setting.clones)
        << CheckSharedPlacement(*base.Open(), *target.Open());
    for (const size_t block_size : {size_t{512}, size_t{4096}, size_t{65536}}) {
      const ByteSet truth = reference::ChangedBytes(before, after, block_size);
      for (const bool compare_data : {false, true}) {
        ReflinkDeltaOptions options;
        options.images.block_size = block_size;
        options.compare_data = compare_data;
        ASSERT_OK_AND_ASSIGN(auto cursor,
                             MakeReflinkDeltaCursor(base.Open(), target.Open(), options));
        const auto full = test::Drain(*cursor);
        ASSERT_OK(full);
        const ByteSet got = reference::BytesOf(*full, after.size());
        EXPECT_TRUE(IsSubset(truth, got)) << block_size;
        if (compare_data || !setting.clones) {
          EXPECT_EQ(*full, reference::RunsOf(truth)) << block_size;
        } else {
          EXPECT_LT(BytesIn(got), after.size() / 2);
          if (seed == 1) {
            EXPECT_EQ(*full, Ranges{});
          }
        }
        for (int i = 0; i < 5; ++i) {
          const uint64_t offset = random() % after.size();
          EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, offset)),
                    reference::CutAt(*full, offset / block_size * block_size))
              << block_size << " from " << offset;
        }
      }
    }

    for (const RealFile* file : {&base, &target}) {
      const std::vector<uint8_t> bytes = file->Bytes();
      const ByteSet nonzero = reference::ChangedBytes({}, bytes, 4096);
      ASSERT_OK_AND_ASSIGN(const Ranges extents,
                           test::Drain(*ValueOf(MakeExtentAllocationCursor(file->Open()))));
      EXPECT_TRUE(IsSubset(nonzero, reference::BytesOf(extents, bytes.size())));
      // SEEK_DATA also reports cached pages over unwritten extents, even if they were only read.
      // For written extents both agree.
      ASSERT_OK_AND_ASSIGN(const Ranges data,
                           test::Drain(*ValueOf(MakeImageAllocationCursor(file->Open()))));
      EXPECT_TRUE(IsSubset(reference::BytesOf(extents, bytes.size()),
                           reference::BytesOf(data, bytes.size())));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MountedFilesTest,
    testing::Values(Setting{"xfs", "mkfs.xfs -q -m reflink=1", "loop", true, false},
                    Setting{"btrfs", "mkfs.btrfs -q", "loop", true, false},
                    Setting{"btrfs_subvolumes", "mkfs.btrfs -q", "loop", true, true},
                    Setting{"btrfs_compressed", "mkfs.btrfs -q", "loop,compress-force=zstd", true,
                            true},
                    Setting{"ext4", "mkfs.ext4 -q", "loop", false, false}),
    [](const auto& info) { return info.param.name; });

// A block snapshot of an XFS mounted beside it: same identity, same addresses, two disks.
TEST(MountedFilesTest, CopyOfAFileSystemIsAnotherOne) {
  LoopMount origin({.mkfs = "mkfs.xfs -q -m reflink=1"});
  if (!origin.mounted()) GTEST_SKIP() << origin.why_not();
  RealFile base(origin / "image");
  test::SeededRandom random(1);
  base.Write(0, RandomData(kMiB, false, random));
  ASSERT_TRUE(origin.shell().Run("fsfreeze -f '" + origin.path() + "'; fsfreeze -u '" +
                                 origin.path() + "'"))
      << origin.shell().Output();
  LoopMount copy({.mkfs = "", .mount = "loop,nouuid", .image = origin.image()});
  if (!copy.mounted()) GTEST_SKIP() << copy.why_not();
  RealFile target(copy / "image");
  target.Write(5000, {1, 2, 3});  // in place
  EXPECT_EQ(CheckSharedPlacement(*base.Open(), *target.Open()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeReflinkDeltaCursor(base.Open(), target.Open())))),
            (Ranges{{4096, 4096}}));
}

// Two halves of one compressed extent: FIEMAP reports the address of the whole for both.
TEST(MountedFilesTest, HalvesOfACompressedExtentDiffer) {
  LoopMount mount({.mkfs = "mkfs.btrfs -q", .mount = "loop,compress-force=zstd"});
  if (!mount.mounted()) GTEST_SKIP() << mount.why_not();
  RealFile whole(mount / "whole");
  std::vector<uint8_t> bytes(131'072, 1);
  std::fill(bytes.begin() + 65'536, bytes.end(), uint8_t{2});
  whole.Write(0, bytes);
  ASSERT_EQ(fsync(whole.descriptor()), 0);
  RealFile base(mount / "base");
  RealFile target(mount / "target");
  for (const RealFile* file : {&base, &target}) {
    file_clone_range range = {};
    range.src_fd = whole.descriptor();
    range.src_offset = file == &target ? 65'536 : 0;
    range.src_length = 65'536;
    ASSERT_EQ(ioctl(file->descriptor(), FICLONERANGE, &range), 0);
  }
  ASSERT_OK(CheckSharedPlacement(*base.Open(), *target.Open()));
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeReflinkDeltaCursor(base.Open(), target.Open())))),
            (Ranges{{0, 65'536}}));
}

// Two separate btrfs share nothing, whatever their files' addresses.
TEST(MountedFilesTest, TwoFileSystemsShareNothing) {
  LoopMount one({.mkfs = "mkfs.btrfs -q"});
  LoopMount two({.mkfs = "mkfs.btrfs -q"});
  if (!one.mounted() || !two.mounted()) GTEST_SKIP() << one.why_not() << two.why_not();
  RealFile base(one / "image");
  RealFile target(two / "image");
  test::SeededRandom random(1);
  base.Write(0, RandomData(kMiB, false, random));
  target.Write(0, base.Bytes());
  target.Write(5000, {1, 2, 3});
  EXPECT_FALSE(CheckSharedPlacement(*base.Open(), *target.Open()).ok());
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeReflinkDeltaCursor(base.Open(), target.Open())))),
            (Ranges{{4096, 4096}}));
}

}  // namespace file_extents_mount_test
}  // namespace cbt
