// A file system is lost under an open volume and mounted again, and the machine does not restart:
// what was not on disk is gone, as after a loss of power, but the id of the boot is the same.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/file_io.h"
#include "cbt/units.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/child.h"
#include "tests/support/files.h"
#include "tests/support/loop_mount.h"
#include "tests/support/status.h"
#include "tests/volume/volume_model.h"

namespace cbt::volume {
namespace lost_filesystem_test {

using test::ValueOf;
using test::VolumeModel;
using namespace units;

constexpr size_t kG = 4096;
constexpr size_t kSize = 64_MiB;

// EXT4_IOC_SHUTDOWN, without writing the journal.
void LoseFileSystem(const std::string& path) {
  const OwnedDescriptor directory(OpenFile(path, O_RDONLY | O_DIRECTORY));
  uint32_t without_journal = 2;
  EXPECT_EQ(::ioctl(directory.number(), _IOR('X', 125, uint32_t), &without_journal), 0);
}

std::vector<uint8_t> Pattern() {
  std::vector<uint8_t> bytes(kSize);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i / 1000 % 250 + 1);
  return bytes;
}

TEST(LostFileSystemTest, MAASnapshotThatIsCopiedLosesNothing) {
  test::LoopMount mount({.mkfs = "mke2fs -q -t ext4"});
  if (!mount.mounted()) GTEST_SKIP() << mount.why_not();
  const std::string directory = mount / "v";
  const std::vector<uint8_t> bytes = Pattern();
  test::RunInChild([&] {
    EXPECT_OK(TrackedVolume::Create(directory, kSize));
    auto volume = ValueOf(TrackedVolume::Open(directory, {.always_copy = true}));
    EXPECT_OK(volume->Write(0, bytes, Durability::kFlushed));
    EXPECT_OK(volume->TakeSnapshot("s"));
    const std::vector<uint8_t> other(kG, 255);
    for (uint64_t at = kSize - 1_MiB; at < kSize; at += 300_KiB) {
      EXPECT_OK(volume->Write(at, other, Durability::kFlushed));
    }
    // The kernel may write the list at any time, whatever it writes of the copy.
    const OwnedDescriptor list(OpenFile(directory + "/copying/s~copied", O_RDWR));
    if (list.has_value()) {
      EXPECT_EQ(::fdatasync(list.number()), 0);
    }
    LoseFileSystem(mount.path());
    static_cast<void>(volume.release());  // the process ends in the middle of it
  });
  ASSERT_TRUE(mount.shell().Run("umount '" + mount.path() + "' && mount -o loop '" + mount.image() +
                                "' '" + mount.path() + "'"))
      << mount.shell().Output();
  auto volume = ValueOf(TrackedVolume::Open(directory, {.always_copy = true}));
  ASSERT_TRUE(volume->WaitForCopies(60));
  const auto path = volume->SnapshotPath("s");
  ASSERT_OK(path) << volume->status().last_error;
  EXPECT_TRUE(test::ReadFile<std::vector<uint8_t>>(*path) == bytes);
  ASSERT_OK(volume->TakeSnapshot("t"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  const auto now = test::ReadFile<std::vector<uint8_t>>(ValueOf(volume->SnapshotPath("t")));
  EXPECT_TRUE(test::Covers(ValueOf(test::Drain(*ValueOf(volume->Delta("s", "t")))),
                           VolumeModel::Differing(bytes, now, kG), kG));
  EXPECT_EQ(now[kSize - 1_MiB], 255);
}

}  // namespace lost_filesystem_test
}  // namespace cbt::volume
