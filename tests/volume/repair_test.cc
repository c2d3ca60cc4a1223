// What makes writes fail goes away by itself, and writes succeed again.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cbt/units.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/full_disk.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::volume {
namespace repair_test {

using test::ValueOf;
using namespace units;

// The log can't be written, and then it can: no snapshot and no checkpoint comes in between, and no
// write succeeds meanwhile.
TEST(RepairTest, MDWritesSucceedOnceThereIsRoom) {
  const test::TempDir directory;
  test::RequireOk(TrackedVolume::Create(directory / "v", 256_MiB));
  const auto volume = ValueOf(TrackedVolume::Open(directory / "v", {.checkpoint_seconds = 0}));
  const std::vector<uint8_t> block(4096, 1);
  const auto write = [&](uint64_t at) { return volume->Write(at, block, Durability::kCached); };
  {
    const test::FullDisk full;
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(write(128_MiB).ok());
      EXPECT_NE(volume->status().last_error, "");
      // The worker's attempts fail too.
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
    EXPECT_NE(volume->status().last_error, "");
  }
  absl::Status status = write(128_MiB);
  for (int i = 0; i < 600 && !status.ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    status = write(128_MiB);
  }
  EXPECT_OK(status);
  // Without another write, too.
  for (int i = 0; i < 600 && !volume->status().last_error.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(volume->status().last_error, "");
  EXPECT_OK(write(0));
  // Failed writes are marked as well: they may have been done in part.
  EXPECT_EQ(volume->status().changed_bytes, 2 * 4096u);
  EXPECT_OK(volume->Close());
}

}  // namespace repair_test
}  // namespace cbt::volume
