// How often file systems are asked where data is. This program's lseek() overrides the C library's
// and counts.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

#include "cbt/executor.h"
#include "cbt/source/image.h"
#include "cbt/units.h"
#include "source/image/chunk_compare.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/memory_image.h"
#include "tests/support/status.h"

namespace {

std::atomic<int> lookups{0};

}  // namespace

extern "C" off_t lseek(int descriptor, off_t offset, int whence) noexcept {
  if (whence == SEEK_HOLE) ++lookups;
  return syscall(SYS_lseek, descriptor, offset, whence);
}

namespace cbt {
namespace {

using test::MemoryImage;

std::shared_ptr<const Image> FilledImage(uint64_t bytes) {
  return MemoryImage(std::vector<uint8_t>(static_cast<size_t>(bytes), 1)).Open();
}

// The kernel goes through the whole range each time: from chunk to chunk, that is quadratic.
TEST(DataWalk, ARangeOverManyChunksIsLookedUpOnce) {
  const auto base = FilledImage(40 * kMiB);
  const auto target = FilledImage(48 * kMiB);
  ThreadPool pool(2);
  for (Executor* const executor :
       {static_cast<Executor*>(nullptr), static_cast<Executor*>(&pool)}) {
    lookups = 0;
    ASSERT_OK_AND_ASSIGN(auto cursor, MakeImageDeltaCursor(base, target, {.executor = executor}));
    ASSERT_OK_AND_ASSIGN(const auto changed, test::Drain(*cursor));
    EXPECT_EQ(changed, (reference::Ranges{{40 * kMiB, 8 * kMiB}}));
    EXPECT_LE(lookups, 4);
  }
}

TEST(DataWalk, APairMovesToTheFirstDataOfEitherSide) {
  std::vector<uint8_t> bytes(static_cast<size_t>(4 * test::kHoleBytes), 1);
  const auto full = MemoryImage(bytes).Open();
  const ImagePair pair{nullptr, full};
  for (const uint64_t offset : {uint64_t{0}, uint64_t{100}, test::kHoleBytes}) {
    ASSERT_OK_AND_ASSIGN(const uint64_t next, pair.NextData(offset));
    EXPECT_EQ(next, offset);
  }
  ASSERT_OK_AND_ASSIGN(const uint64_t end, pair.NextData(4 * test::kHoleBytes));
  EXPECT_EQ(end, 4 * test::kHoleBytes);
}

}  // namespace
}  // namespace cbt
