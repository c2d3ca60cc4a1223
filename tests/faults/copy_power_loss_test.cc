// Power, or the file system, is lost at every step of a snapshot that is copied while the volume is
// written to. The next process completes the copy, with the contents that the volume had when the
// snapshot was taken.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "programs/volume/snapshot_copy.h"
#include "tests/faults/support/crash_disk.h"
#include "tests/faults/support/disk_recorder.h"
#include "tests/support/figures.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::volume {
namespace copy_power_loss_test {

using test::DiskOperation;
using test::DiskState;
using test::ValueOf;

constexpr uint64_t kRegion = SnapshotCopy::kRegionBytes;
constexpr uint64_t kSize = 5 * kRegion + 1000;

std::vector<uint8_t> Original() {
  std::vector<uint8_t> bytes(kSize);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i / 700 % 251 + 1);
  // A hole in a region, and one over a region.
  std::fill_n(bytes.begin() + kRegion, 8192, uint8_t{0});
  return bytes;
}

void Overwrite(SnapshotCopy& copy, int data, uint64_t offset, size_t length) {
  EXPECT_EQ(copy.Preserve({offset, length}), 0);
  const std::vector<uint8_t> bytes(length, 255);
  EXPECT_EQ(::pwrite(data, bytes.data(), length, static_cast<off_t>(offset)),
            static_cast<ssize_t>(length));
}

// What the process that took the snapshot did, from an empty directory.
std::vector<DiskOperation> Record(const std::string& live) {
  const std::vector<uint8_t> original = Original();
  std::filesystem::create_directory(live);
  test::StartRecording(live);
  EXPECT_OK(MakeDirectory(live + "/copying", true));
  const OwnedDescriptor data(OpenFile(live + "/data", O_RDWR | O_CREAT | O_EXCL, 0600));
  EXPECT_EQ(::ftruncate(data.number(), kSize), 0);
  EXPECT_EQ(::pwrite(data.number(), original.data(), kSize, 0), static_cast<ssize_t>(kSize));
  EXPECT_EQ(::fsync(data.number()), 0);
  EXPECT_OK(SyncDirectory(live));
  const Directory copying = ValueOf(Directory::Open(live + "/copying"));
  const auto copy = ValueOf(SnapshotCopy::Begin(copying, "s", kSize, 1'000'000'007, data.number()));
  EXPECT_OK(copying.Sync());
  test::Note("taken");
  EXPECT_TRUE(copy->Continue(1));
  Overwrite(*copy, data.number(), 3 * kRegion + 100, 5000);
  Overwrite(*copy, data.number(), 100, 4096);
  EXPECT_EQ(::fdatasync(data.number()), 0);
  Overwrite(*copy, data.number(), 3 * kRegion + 9000, 10);
  EXPECT_TRUE(copy->Continue(1));
  Overwrite(*copy, data.number(), 5 * kRegion - 10, 20);
  EXPECT_EQ(::fdatasync(data.number()), 0);
  EXPECT_FALSE(copy->Continue(100));
  Overwrite(*copy, data.number(), 0, 3 * kRegion);
  EXPECT_OK(copy->Finish());
  return test::StopRecording();
}

// What another process does with what is on the disk; empty if it gets the snapshot.
std::string Complete(const std::string& after) {
  const OwnedDescriptor data(OpenFile(after + "/data", O_RDWR));
  const Directory copying = ValueOf(Directory::Open(after + "/copying"));
  const auto copy = SnapshotCopy::Resume(copying, "s", data.number());
  if (!copy.ok()) return copy.status().ToString();
  Overwrite(**copy, data.number(), 2 * kRegion - 1, 2);
  while ((*copy)->Continue(2)) {
  }
  if (absl::Status status = (*copy)->Finish(); !status.ok()) return status.ToString();
  const auto bytes = test::ReadFile<std::vector<uint8_t>>(after + "/copying/s");
  const std::vector<uint8_t> original = Original();
  if (bytes == original) return "";
  const auto wrong = std::mismatch(bytes.begin(), bytes.end(), original.begin(), original.end());
  return absl::StrCat("the snapshot differs from offset ", wrong.first - bytes.begin());
}

TEST(CopyPowerLoss, MAEverySnapshotIsCompletedAsItWasTaken) {
  const test::TempDir scratch;
  const std::vector<DiskOperation> operations = Record(scratch / "live");
  ASSERT_FALSE(operations.empty());
  test::CrashDisk disk(29);
  bool taken = false;
  int states = 0;
  std::set<uint64_t> seen;
  const auto check = [&](const DiskState& state) {
    if (!taken || testing::Test::HasFailure() || !seen.insert(state.Hash()).second) return;
    ++states;
    state.WriteTo(scratch / "after");
    EXPECT_EQ(Complete(scratch / "after"), "") << "state " << states;
  };
  const auto pairs = static_cast<size_t>(16 * test::TestScale());
  for (const DiskOperation& operation : operations) {
    taken |= operation.kind == DiskOperation::Kind::kNote;
    if (taken) disk.ForEachState(pairs, check);
    disk.Do(operation);
  }
  disk.ForEachState(pairs, check);
  EXPECT_GT(states, 100);
  test::PrintFigure("copy_power_loss_states", states);
}

}  // namespace copy_power_loss_test
}  // namespace cbt::volume
