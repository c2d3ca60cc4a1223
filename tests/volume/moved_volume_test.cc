// A volume's directory is moved while it is open, and another volume takes its path; or its manifest
// is lost.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cbt/units.h"
#include "programs/volume/snapshot_reader.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"
#include "tests/volume/volume_model.h"

namespace cbt::volume {
namespace moved_volume_test {

using test::ValueOf;
using namespace units;

std::vector<uint8_t> BytesOf(const TrackedVolume& volume) {
  std::vector<uint8_t> bytes(volume.capacity());
  EXPECT_OK(volume.Read(0, bytes));
  return bytes;
}

TEST(MovedVolumeTest, MFTheVolumeThatTookThePathIsLeftAlone) {
  const test::TempDir scratch;
  const std::string path = scratch / "v";
  test::RequireOk(TrackedVolume::Create(path, 4_MiB));
  auto moved = ValueOf(TrackedVolume::Open(path, {.always_copy = true}));
  ASSERT_OK(moved->Write(0, std::vector<uint8_t>(1_MiB, 1), Durability::kCached));
  ASSERT_OK(moved->TakeSnapshot("s"));
  ASSERT_TRUE(moved->WaitForCopies(60));
  const auto reader = ValueOf(SnapshotReader::Open(path));
  std::filesystem::rename(path, scratch / "moved");

  test::RequireOk(TrackedVolume::Create(path, 4_MiB));
  std::vector<uint8_t> other_bytes;
  {
    const auto other = ValueOf(TrackedVolume::Open(path, {.always_copy = true}));
    ASSERT_OK(other->Write(2_MiB, std::vector<uint8_t>(1_MiB, 2), Durability::kCached));
    ASSERT_OK(other->TakeSnapshot("s"));
    ASSERT_TRUE(other->WaitForCopies(60));
    ASSERT_OK(other->Write(3_MiB, std::vector<uint8_t>(4_KiB, 3), Durability::kCached));
    other_bytes = BytesOf(*other);
    ASSERT_OK(other->Close());
  }

  ASSERT_OK(moved->Write(3_MiB, std::vector<uint8_t>(4_KiB, 4), Durability::kCached));
  ASSERT_OK(moved->Resize(8_MiB));
  ASSERT_OK(moved->Write(7_MiB, std::vector<uint8_t>(4_KiB, 5), Durability::kCached));
  ASSERT_OK(moved->Resize(12_MiB));
  ASSERT_OK(moved->TakeSnapshot("t"));
  ASSERT_TRUE(moved->WaitForCopies(60));
  // Never the other's file, and what needs none is its own.
  EXPECT_TRUE(absl::IsAborted(moved->SnapshotPath("s").status()));
  EXPECT_TRUE(absl::IsAborted(reader->PathOf("s").status()));
  const reference::Ranges allocated = {{0, 1_MiB}};
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(moved->Allocated("s")))), allocated);
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(reader->Allocated("s")))), allocated);
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(moved->Delta("s", "t")))),
            (reference::Ranges{{3_MiB, 4_KiB}, {7_MiB, 4_KiB}}));
  const std::vector<uint8_t> moved_bytes = BytesOf(*moved);
  ASSERT_OK(moved->Close());

  const auto other = ValueOf(TrackedVolume::Open(path));
  EXPECT_TRUE(BytesOf(*other) == other_bytes);
  EXPECT_EQ(other->status().changed_bytes, 4_KiB);
  EXPECT_TRUE(other->status().exact);
  moved = ValueOf(TrackedVolume::Open(scratch / "moved"));
  EXPECT_TRUE(BytesOf(*moved) == moved_bytes);
  EXPECT_OK(moved->SnapshotPath("t"));
}

// A volume that was in use and has lost its manifest is not replaced by an empty one.
TEST(LostManifestTest, LosesNoData) {
  const test::TempDir directory;
  const std::string place = directory / "v";
  test::RequireOk(TrackedVolume::Create(place, 1_MiB));
  // As a Create() that is interrupted behind the manifest leaves it.
  directory.Write("v/UNFINISHED", "");
  {
    const auto volume = ValueOf(TrackedVolume::Open(place));
    const std::vector<uint8_t> bytes(5000, 7);
    ASSERT_OK(volume->Write(1000, bytes, Durability::kCached));
    ASSERT_OK(volume->TakeSnapshot("kept"));
    ASSERT_TRUE(volume->WaitForCopies(60));
    ASSERT_OK(volume->Close());
  }
  const std::string data = test::ReadFile(directory / "v/data");
  const std::string manifest = test::ReadFile(directory / "v/MANIFEST");
  std::filesystem::remove(directory / "v/MANIFEST");
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = TrackedVolume::Create(place, 1_MiB);
    EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
    EXPECT_NE(refused.message().find("MANIFEST"), absl::string_view::npos) << refused;
    EXPECT_TRUE(test::ReadFile(directory / "v/data") == data);
    EXPECT_TRUE(test::ReadFile(directory / "v/snapshots/kept") == data);
  }
  directory.Write("v/MANIFEST", manifest);
  EXPECT_OK(ValueOf(TrackedVolume::Open(place))->FindSnapshot("kept"));
  // What is removed on purpose is.
  std::filesystem::remove(directory / "v/MANIFEST");
  EXPECT_OK(TrackedVolume::Remove(place));
  EXPECT_OK(TrackedVolume::Create(place, 1_MiB));
}

}  // namespace moved_volume_test
}  // namespace cbt::volume
