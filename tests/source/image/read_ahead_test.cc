// What the kernel is asked to read ahead. This program's posix_fadvise() and getrusage() override
// the C library's: they record each request, and report that a read had to wait.
#include "source/image/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cbt/source/image.h"
#include "cbt/units.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/memory_file.h"
#include "tests/support/memory_image.h"
#include "tests/support/status.h"

namespace {

struct Advice {
  int descriptor;
  uint64_t begin;
  uint64_t end;
};

// Of the thread that set it; null if not watched.
thread_local std::vector<Advice>* asked = nullptr;
thread_local int refusal = 0;
thread_local bool waits = false;
thread_local long waited = 0;

}  // namespace

extern "C" int posix_fadvise(int descriptor, off_t offset, off_t length, int advice) noexcept {
  if (asked == nullptr || advice != POSIX_FADV_WILLNEED) {
    return syscall(SYS_fadvise64, descriptor, offset, length, advice) == 0 ? 0 : errno;
  }
  const auto begin = static_cast<uint64_t>(offset);
  asked->push_back({descriptor, begin, begin + static_cast<uint64_t>(length)});
  return refusal;
}

extern "C" int getrusage(__rusage_who_t who, rusage* usage) noexcept {
  const auto result = static_cast<int>(syscall(SYS_getrusage, who, usage));
  if (asked != nullptr && who == RUSAGE_THREAD) {
    if (waits) ++waited;
    usage->ru_nvcsw = waited;
  }
  return result;
}

namespace cbt {
namespace {

using reference::Ranges;
using test::MemoryImage;
using test::ValueOf;

class ReadAheadTest : public testing::Test {
 protected:
  ReadAheadTest() {
    asked = &asked_;
    refusal = 0;
    waits = false;
    waited = 0;
  }
  ~ReadAheadTest() override { asked = nullptr; }

  Ranges AskedOf(const Image& image) const {
    Ranges ranges;
    for (const Advice& one : asked_) {
      if (one.descriptor == image.descriptor()) ranges.emplace_back(one.begin, one.end - one.begin);
    }
    return ranges;
  }
  uint64_t AskedBytes(const Image& image) const {
    uint64_t bytes = 0;
    for (const auto& [offset, length] : AskedOf(image)) bytes += length;
    return bytes;
  }
  // The end of the requested range.
  uint64_t AskedEnd() const {
    uint64_t end = 0;
    for (const Advice& one : asked_) end = std::max(end, one.end);
    return end;
  }

  static std::shared_ptr<const Image> Full(uint64_t size) {
    return MemoryImage(std::vector<uint8_t>(static_cast<size_t>(size), 1)).Open();
  }

  std::vector<Advice> asked_;
};

TEST_F(ReadAheadTest, AsksForBothSidesInStepsThatTheKernelTakes) {
  const ImagePair pair{Full(300 * kKiB), Full(kMiB)};
  ReadAhead ahead(pair);
  ahead.Ask(64 * kKiB, 512 * kKiB);
  EXPECT_EQ(AskedOf(*pair.base),
            (Ranges{{64 * kKiB, 64 * kKiB}, {128 * kKiB, 128 * kKiB}, {256 * kKiB, 44 * kKiB}}));
  EXPECT_EQ(AskedOf(*pair.target), (Ranges{{64 * kKiB, 64 * kKiB},
                                           {128 * kKiB, 128 * kKiB},
                                           {256 * kKiB, 128 * kKiB},
                                           {384 * kKiB, 128 * kKiB}}));
  // Both start at the same offset: neither waits for the other's last byte.
  EXPECT_EQ(asked_[0].begin, asked_[1].begin);
  EXPECT_NE(asked_[0].descriptor, asked_[1].descriptor);
}

TEST_F(ReadAheadTest, AsksForDataAloneAndNotForEachTinyRange) {
  const std::vector<uint8_t> bytes(kMiB);
  const MemoryImage file(bytes, [](size_t page) { return page < 10 || page % 2 == 0; });
  for (const bool skip_holes : {true, false}) {
    const ImagePair pair{nullptr, file.Open(), skip_holes};
    ReadAhead ahead(pair);
    asked_.clear();
    ahead.Ask(0, 128 * kKiB);
    if (skip_holes) {
      EXPECT_EQ(
          AskedOf(*pair.target),
          (Ranges{{11 * 4096, 4096}, {13 * 4096, 4096}, {15 * 4096, 4096}, {17 * 4096, 4096}}));
    } else {
      EXPECT_EQ(AskedOf(*pair.target), (Ranges{{0, 128 * kKiB}}));
    }
  }
}

TEST_F(ReadAheadTest, AsksNoMoreOnceItIsRefused) {
  const ImagePair pair{nullptr, Full(kMiB)};
  ReadAhead ahead(pair);
  refusal = EINVAL;
  ahead.Ask(0, kMiB);
  EXPECT_EQ(asked_.size(), 1u);
}

// Without a page cache, data would be fetched twice. Such a file cannot be mapped; neither can one
// opened write-only.
TEST_F(ReadAheadTest, AFileThatCannotBeMappedIsNotAskedFor) {
  const test::MemoryFile file;
  file.Write(std::vector<uint8_t>(kMiB, 1));
  for (const int flags : {O_RDONLY, O_WRONLY}) {
    const int descriptor = open(file.path().c_str(), flags | O_CLOEXEC);
    const ImagePair pair{nullptr, ValueOf(Image::FromDescriptor(descriptor, "image")), false};
    asked_.clear();
    ReadAhead(pair).Ask(0, kMiB);
    EXPECT_EQ(AskedBytes(*pair.target), flags == O_RDONLY ? kMiB : 0);
  }
}

TEST_F(ReadAheadTest, AWaitIsSeenAndWorkIsNot) {
  asked = nullptr;  // the system's own counter
  std::atomic<bool> cold{false};
  WaitWatch watch(&cold);
  watch.Update();
  EXPECT_FALSE(cold);
  poll(nullptr, 0, 1);
  watch.Update();
  EXPECT_TRUE(cold);
  WaitWatch(nullptr).Update();
}

TEST_F(ReadAheadTest, WhatNeverWaitsIsAskedForItsFirstChunkAlone) {
  const auto base = Full(20 * kMiB);
  const auto target = Full(20 * kMiB);
  auto cursor = ValueOf(MakeImageDeltaCursor(base, target));
  EXPECT_TRUE(ValueOf(test::Drain(*cursor)).empty());
  EXPECT_EQ(AskedBytes(*base), kMiB);
  EXPECT_EQ(AskedBytes(*target), kMiB);
}

TEST_F(ReadAheadTest, WhatWaitsIsAskedForOnceAndNotTooEarly) {
  waits = true;
  const auto base = Full(40 * kMiB);
  const auto target = Full(40 * kMiB);
  auto cursor = ValueOf(MakeImageDeltaCursor(base, target, {.chunks_ahead = 5}));
  ExtentBatch batch;
  bool ahead = false;
  for (Step step = Step::kMore; step == Step::kMore;) {
    step = ValueOf(cursor->Next(batch));
    EXPECT_LE(AskedEnd(), std::min(cursor->covered() + 5 * kMiB, 40 * kMiB));
    ahead |= AskedEnd() >= cursor->covered() + 4 * kMiB;
  }
  EXPECT_TRUE(ahead);
  EXPECT_EQ(AskedBytes(*base), 40 * kMiB);
  EXPECT_EQ(AskedBytes(*target), 40 * kMiB);
}

// A 16 MiB chunk would need 32 MiB of page cache at once.
TEST_F(ReadAheadTest, ALongChunkIsAskedForInParts) {
  waits = true;
  const auto base = Full(32 * kMiB);
  const auto target = Full(32 * kMiB);
  std::vector<uint64_t> changed;
  std::atomic<bool> cold{true};
  ASSERT_OK(CompareChunk({base, target}, 0, 16 * kMiB, 256 * kKiB, kMiB, &cold, changed));
  EXPECT_EQ(AskedBytes(*base), 15 * kMiB);
  EXPECT_EQ(AskedEnd(), 16 * kMiB);
  // The first call requests up to the last position needed, the others one piece each.
  EXPECT_EQ(asked_.front().begin, kMiB);
}

TEST_F(ReadAheadTest, NothingIsAskedForWhereTheUserSaysSo) {
  waits = true;
  auto cursor = ValueOf(MakeImageDeltaCursor(Full(8 * kMiB), Full(8 * kMiB), {.chunks_ahead = 0}));
  EXPECT_TRUE(ValueOf(test::Drain(*cursor)).empty());
  EXPECT_TRUE(asked_.empty());
}

}  // namespace
}  // namespace cbt
