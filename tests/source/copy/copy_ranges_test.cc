// CopyRanges() against the obvious oracle: a loop over every byte of the extents.
#include "cbt/source/copy_ranges.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "tests/support/files.h"
#include "tests/support/shell.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace copy_ranges_test {

using test::RequireOk;
using test::ValueOf;

using Bytes = std::vector<uint8_t>;

// Memory as input, with holes where nothing but zeros is, and a fault at one offset.
class MemoryInput final : public CopyInput {
 public:
  explicit MemoryInput(Bytes bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const override {
    if (offset <= fails_at && fails_at < offset + out.size()) {
      return absl::UnavailableError(absl::StrCat("input at ", fails_at));
    }
    if (offset + out.size() > bytes_.size()) return absl::OutOfRangeError("past the end");
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }
  absl::StatusOr<Extent> FindData(uint64_t offset) const override {
    if (!tells_holes) return CopyInput::FindData(offset);
    const auto is_data = [](uint8_t byte) { return byte != 0; };
    const auto begin =
        std::find_if(bytes_.begin() + static_cast<int64_t>(offset), bytes_.end(), is_data);
    const auto end = std::find_if_not(begin, bytes_.end(), is_data);
    return Extent{static_cast<uint64_t>(begin - bytes_.begin()),
                  static_cast<uint64_t>(end - begin)};
  }

  uint64_t fails_at = ~uint64_t{0};
  bool tells_holes = true;

 private:
  const Bytes bytes_;
};

// Memory as output, with the faults of real ones.
class MemoryOutput final : public CopyOutput {
 public:
  explicit MemoryOutput(Bytes bytes) : bytes_(std::move(bytes)) {}
  absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes) override {
    const int busy = ++busy_;
    int most = most_busy;
    while (busy > most && !most_busy.compare_exchange_weak(most, busy)) {
    }
    if (on_write) on_write();
    --busy_;
    if (offset <= full_at && full_at < offset + bytes.size()) {
      return absl::ResourceExhaustedError(absl::StrCat("output at ", full_at));
    }
    const std::lock_guard lock(mutex_);
    if (offset + bytes.size() > bytes_.size()) return absl::OutOfRangeError("past the end");
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
    if (offset <= loses && loses < offset + bytes.size()) bytes_[loses] ^= 1;
    return absl::OkStatus();
  }
  absl::Status WriteZeros(Extent extent) override {
    const std::lock_guard lock(mutex_);
    if (extent.end() > bytes_.size()) return absl::OutOfRangeError("past the end");
    zeroed += extent.length;
    std::fill_n(bytes_.begin() + static_cast<int64_t>(extent.offset), extent.length, uint8_t{0});
    if (extent.offset <= loses && loses < extent.end()) bytes_[loses] ^= 1;
    return absl::OkStatus();
  }
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) override {
    const std::lock_guard lock(mutex_);
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    ++synced;
    return sync_status;
  }
  const Bytes& bytes() const { return bytes_; }

  uint64_t full_at = ~uint64_t{0};
  uint64_t loses = ~uint64_t{0};
  uint64_t zeroed = 0;
  int synced = 0;
  absl::Status sync_status;
  std::function<void()> on_write;
  std::atomic<int> most_busy{0};

 private:
  std::mutex mutex_;
  std::atomic<int> busy_{0};
  Bytes bytes_;
};

// A cursor whose source breaks before its end.
class BrokenCursor final : public ExtentCursor {
 public:
  explicit BrokenCursor(uint64_t capacity)
      : ExtentCursor({.capacity = capacity, .granularity = 1}) {}

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (covered() > 0) return absl::UnavailableError("the stream broke");
    batch.push_back({0, 10});
    return 10;
  }
};

std::unique_ptr<ExtentCursor> CursorOf(std::vector<Extent> extents, uint64_t capacity) {
  return ValueOf(MakeExtentCursor(std::move(extents), {.capacity = capacity, .granularity = 1}));
}

Bytes RandomBytes(std::mt19937_64& random, size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size;) {
    const size_t run = std::min<size_t>(1 + random() % 9000, size - i);
    const bool data = random() % 2 == 0;
    for (size_t k = 0; k < run; ++k) bytes[i + k] = data ? static_cast<uint8_t>(random() | 1) : 0;
    i += run;
  }
  return bytes;
}

std::vector<Extent> RandomExtents(std::mt19937_64& random, uint64_t capacity) {
  std::vector<Extent> extents;
  for (uint64_t at = random() % 5000; at < capacity;) {
    const uint64_t length = std::min<uint64_t>(1 + random() % 20000, capacity - at);
    extents.push_back({at, length});
    at += length + random() % 3 * (random() % 5000);
  }
  return extents;
}

Bytes Expected(Bytes output, const Bytes& input, const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) {
    for (uint64_t i = extent.offset; i < extent.end(); ++i) output[i] = input[i];
  }
  return output;
}

constexpr size_t kPiece = 4096;

TEST(CopyRanges, EqualsTheLoopOverBytes) {
  std::mt19937_64 random(7);
  ThreadPool pool(3);
  for (int run = 0; run < 300; ++run) {
    const uint64_t capacity = random() % 4 == 0 ? random() % 10 : random() % 200'000;
    const Bytes source = RandomBytes(random, capacity);
    const std::vector<Extent> extents = RandomExtents(random, capacity);
    const bool empty = random() % 3 == 0;
    const Bytes before = empty ? Bytes(capacity) : RandomBytes(random, capacity);
    MemoryInput input(source);
    input.tells_holes = random() % 2 == 0;
    MemoryOutput output(before);
    uint64_t covered = 0;
    const CopyOptions options = {.executor = random() % 2 == 0 ? &pool : nullptr,
                                 .pieces_in_flight = 1 + random() % 6,
                                 .piece_bytes = kPiece << random() % 5,
                                 .output_is_zero = empty,
                                 .find_zeros = random() % 2 == 0,
                                 .verify = random() % 2 == 0,
                                 .on_progress = [&](const CopyProgress& done) {
                                   EXPECT_GE(done.covered, covered);
                                   covered = done.covered;
                                 }};
    const auto cursor = CursorOf(extents, capacity);
    ASSERT_OK_AND_ASSIGN(const CopyProgress done, CopyRanges(*cursor, input, output, options));
    ASSERT_TRUE(output.bytes() == Expected(before, source, extents)) << "run " << run;
    EXPECT_EQ(covered, capacity);
    EXPECT_EQ(done.covered, capacity);
    EXPECT_EQ(done.ranges, extents.size());
    EXPECT_EQ(done.data_bytes + done.zero_bytes, done.range_bytes);
    EXPECT_EQ(output.synced, 1);
  }
}

// Everything in one thread that also runs the caller: nothing waits for a task behind itself.
TEST(CopyRanges, AnExecutorThatIsBusyWithTheCallerWillDo) {
  ThreadPool pool(1);
  std::mt19937_64 random(3);
  const Bytes source = RandomBytes(random, 1'000'000);
  MemoryInput input(source);
  MemoryOutput output(Bytes(source.size()));
  absl::StatusOr<CopyProgress> done = absl::UnknownError("not run");
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  pool.Schedule([&] {
    const auto cursor = CursorOf({{0, source.size()}}, source.size());
    done = CopyRanges(*cursor, input, output,
                      {.executor = &pool, .pieces_in_flight = 2, .piece_bytes = kPiece});
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended; });
  ASSERT_OK(done);
  EXPECT_TRUE(output.bytes() == source);
}

TEST(CopyRanges, IsCompleteOnlyIfTheCursorIs) {
  MemoryInput input(Bytes(100, 1));
  MemoryOutput output(Bytes(100));
  BrokenCursor cursor(100);
  uint64_t covered = 0;
  const auto done =
      CopyRanges(cursor, input, output,
                 {.on_progress = [&](const CopyProgress& now) { covered = now.covered; }});
  EXPECT_EQ(done.status(), absl::UnavailableError("the stream broke"));
  EXPECT_EQ(covered, 10u);
  EXPECT_EQ(output.synced, 0);
}

// An error anywhere ends the copy; below what is said to be covered everything has been copied.
TEST(CopyRanges, FaultsAreErrorsAndCoverageIsKept) {
  std::mt19937_64 random(5);
  ThreadPool pool(3);
  constexpr uint64_t kCapacity = 100'000;
  for (int run = 0; run < 200; ++run) {
    const Bytes source(kCapacity, 9);
    const std::vector<Extent> extents = RandomExtents(random, kCapacity);
    MemoryInput input(source);
    MemoryOutput output((Bytes(kCapacity)));
    const Extent hit = extents[random() % extents.size()];
    const uint64_t at = hit.offset + random() % hit.length;
    const int kind = run % 4;
    if (kind == 0) input.fails_at = at;
    if (kind == 1) output.full_at = at;
    if (kind == 2) output.loses = at;
    if (kind == 3) output.sync_status = absl::UnavailableError("sync");
    CopyProgress last;
    const auto cursor = CursorOf(extents, kCapacity);
    const auto done = CopyRanges(*cursor, input, output,
                                 {.executor = run % 2 == 0 ? &pool : nullptr,
                                  .pieces_in_flight = 1 + random() % 8,
                                  .piece_bytes = kPiece,
                                  .verify = kind == 2,
                                  .on_progress = [&](const CopyProgress& now) { last = now; }});
    constexpr absl::StatusCode kCodes[] = {
        absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted,
        absl::StatusCode::kDataLoss, absl::StatusCode::kUnavailable};
    ASSERT_EQ(done.status().code(), kCodes[kind]) << done.status();
    if (kind == 3) continue;
    ASSERT_LE(last.covered, at);
    for (const Extent& extent : extents) {
      for (uint64_t i = extent.offset; i < std::min(extent.end(), last.covered); ++i) {
        ASSERT_EQ(output.bytes()[i], 9) << "run " << run << ", byte " << i;
      }
    }
    // Going on from there gives the whole.
    input.fails_at = output.full_at = output.loses = ~uint64_t{0};
    ASSERT_OK(cursor->Seek(last.covered));
    ASSERT_OK(CopyRanges(*cursor, input, output, {}));
    ASSERT_TRUE(output.bytes() == Expected(Bytes(kCapacity), source, extents)) << "run " << run;
  }
}

TEST(CopyRanges, StopsWhenAskedTo) {
  std::stop_source stop;
  MemoryInput input(Bytes(1'000'000, 1));
  MemoryOutput output(Bytes(1'000'000));
  const auto cursor = CursorOf({{0, 1'000'000}}, 1'000'000);
  uint64_t covered = 0;
  const auto done = CopyRanges(*cursor, input, output,
                               {.piece_bytes = kPiece,
                                .stop = stop.get_token(),
                                .on_progress = [&](const CopyProgress& now) {
                                  covered = now.covered;
                                  if (covered > 100'000) stop.request_stop();
                                }});
  EXPECT_EQ(done.status().code(), absl::StatusCode::kCancelled);
  EXPECT_LT(covered, 120'000u);
}

TEST(CopyRanges, KeepsWithinItsBounds) {
  ThreadPool pool(8);
  MemoryInput input(Bytes(1'000'000, 1));
  MemoryOutput output(Bytes(1'000'000));
  const auto cursor = CursorOf({{0, 1'000'000}}, 1'000'000);
  ASSERT_OK(CopyRanges(*cursor, input, output,
                       {.executor = &pool, .pieces_in_flight = 3, .piece_bytes = kPiece}));
  EXPECT_LE(output.most_busy.load(), 3);
}

TEST(CopyRanges, RefusesTheDataOfAnotherVolume) {
  MemoryOutput output(Bytes(100));
  for (const size_t size : {size_t{0}, size_t{99}, size_t{101}}) {
    MemoryInput input{Bytes(size)};
    const auto cursor = CursorOf({{0, 100}}, 100);
    EXPECT_EQ(CopyRanges(*cursor, input, output).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  const auto cursor = CursorOf({{0, 100}}, 100);
  EXPECT_OK(CopyRanges(*cursor, MemoryInput{Bytes(101)}, output, {.allow_longer_input = true}));
  for (const CopyOptions& wrong :
       {CopyOptions{.pieces_in_flight = 0}, CopyOptions{.pieces_in_flight = 1025},
        CopyOptions{.piece_bytes = 2048}, CopyOptions{.piece_bytes = 5000}}) {
    EXPECT_EQ(CopyRanges(*cursor, MemoryInput{Bytes(100)}, output, wrong).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// The last block of a cursor over blocks extends past the capacity; the copy does not.
TEST(CopyRanges, CutsTheLastBlockAtTheCapacity) {
  MemoryInput input(Bytes(5000, 1));
  MemoryOutput output((Bytes(5000)));
  const auto blocks = ValueOf(ToBlocks(CursorOf({{4500, 10}}, 5000), 4096));
  ASSERT_OK_AND_ASSIGN(const CopyProgress done, CopyRanges(*blocks, input, output));
  EXPECT_EQ(done.range_bytes, 904u);
  EXPECT_EQ(std::count(output.bytes().begin(), output.bytes().end(), 1), 904);
}

TEST(CopyRanges, FilesStaySparse) {
  const test::TempDir directory;
  constexpr uint64_t kSize = 8 * kMiB;
  const OwnedDescriptor from(OpenFile(directory / "from", O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(::ftruncate(from.number(), kSize), 0);
  const Bytes data(100'000, 7);
  ASSERT_EQ(::pwrite(from.number(), data.data(), data.size(), kMiB),
            static_cast<ssize_t>(data.size()));
  ASSERT_EQ(::pwrite(from.number(), Bytes(kMiB).data(), kMiB, 4 * kMiB),
            static_cast<ssize_t>(kMiB));
  const std::shared_ptr<const Image> image = ValueOf(Image::Open(directory / "from"));
  ThreadPool pool(2);
  for (const bool find_zeros : {false, true}) {
    for (const bool full : {false, true}) {
      const std::string path = directory / absl::StrCat("to", find_zeros, full);
      if (full) directory.Write(absl::StrCat("to", find_zeros, full), std::string(kSize, 'x'));
      const OwnedDescriptor to(OpenFile(path, O_RDWR | O_CREAT, 0600));
      ASSERT_EQ(::ftruncate(to.number(), kSize), 0);
      const auto cursor = CursorOf({{0, kSize}}, kSize);
      ASSERT_OK(CopyRanges(
          *cursor, *MakeCopyInput(image), *MakeCopyOutput(to.number(), path),
          {.executor = &pool, .output_is_zero = !full, .find_zeros = find_zeros, .verify = true}));
      EXPECT_TRUE(test::ReadFile(path) == test::ReadFile(directory / "from"));
      struct stat info {};
      ASSERT_EQ(::fstat(to.number(), &info), 0);
      EXPECT_LE(static_cast<uint64_t>(info.st_blocks) * 512,
                (find_zeros ? 1 : 2) * kMiB + 256 * kKiB);
    }
  }
}

// The kernel punches holes past the end of a file, or of a device, without an error.
TEST(CopyRanges, AnOutputThatEndsInAHoleIsNotCut) {
  const test::TempDir directory;
  constexpr uint64_t kSize = 3 * kMiB + 512;
  directory.Write("from", std::string(kMiB, 'x'));
  const OwnedDescriptor from(OpenFile(directory / "from", O_RDWR));
  ASSERT_EQ(::ftruncate(from.number(), kSize), 0);
  const std::shared_ptr<const Image> image = ValueOf(Image::Open(directory / "from"));
  ThreadPool pool(2);
  for (const uint64_t there : {uint64_t{0}, kMiB, 2 * kMiB, kSize - 1, kSize, kSize + 1}) {
    SCOPED_TRACE(there);
    directory.Write("to", std::string(there, 'y'));
    const OwnedDescriptor to(OpenFile(directory / "to", O_RDWR));
    const auto cursor = CursorOf({{0, kSize}}, kSize);
    ASSERT_OK(CopyRanges(*cursor, *MakeCopyInput(image), *MakeCopyOutput(to.number(), "to"),
                         {.executor = &pool}));
    std::string expected = test::ReadFile(directory / "from");
    if (there > kSize) expected += 'y';
    EXPECT_TRUE(test::ReadFile(directory / "to") == expected);
  }
}

// Writing zeros past the end of a device fails, also where they would be holes.
TEST(CopyRanges, ADeviceThatIsTooSmallIsAnError) {
  const test::TempDir directory;
  constexpr uint64_t kSize = 3 * kMiB;
  directory.Write("from", std::string(kMiB / 2, 'x'));
  directory.Write("disk", std::string(kMiB, 'y'));
  ASSERT_EQ(::truncate((directory / "from").c_str(), kSize), 0);
  std::string device =
      test::ShellOutput("losetup --find --show '" + (directory / "disk") + "' 2>/dev/null");
  if (device.empty()) GTEST_SKIP() << "needs root and loop devices";
  device.pop_back();
  const std::shared_ptr<const Image> image = ValueOf(Image::Open(directory / "from"));
  const OwnedDescriptor to(OpenFile(device, O_RDWR));
  // It stays until the descriptor is closed.
  EXPECT_TRUE(test::Shell("losetup --detach " + device));
  const auto cursor = CursorOf({{0, kSize}}, kSize);
  const auto done =
      CopyRanges(*cursor, *MakeCopyInput(image), *MakeCopyOutput(to.number(), "the device"));
  EXPECT_EQ(done.status().code(), absl::StatusCode::kResourceExhausted) << done.status();
}

TEST(CopyRanges, AFullOutputIsNamed) {
  const test::TempDir directory;
  directory.Write("from", std::string(10'000, 'x'));
  const OwnedDescriptor full(OpenFile("/dev/full", O_RDWR));
  const auto cursor = CursorOf({{0, 10'000}}, 10'000);
  const auto done = CopyRanges(*cursor, *MakeCopyInput(ValueOf(Image::Open(directory / "from"))),
                               *MakeCopyOutput(full.number(), "the target"), {.sync = false});
  EXPECT_EQ(done.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(done.status().message().find("the target: "), std::string::npos) << done.status();
}

}  // namespace copy_ranges_test
}  // namespace cbt
