// Byte streams: peeked, read and skipped bytes add up, and no end is overlooked.
#include "cbt/source/byte_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cbt/units.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace byte_stream_test {

std::vector<uint8_t> Numbered(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  return bytes;
}

enum class Kind { kMemory, kFile, kPipe };

class ByteStreams : public testing::TestWithParam<Kind> {
 protected:
  ~ByteStreams() override { JoinWriter(); }
  ByteStreams() = default;
  ByteStreams(const ByteStreams&) = delete;
  ByteStreams& operator=(const ByteStreams&) = delete;

  std::unique_ptr<ByteStream> Open(const std::vector<uint8_t>& bytes) {
    if (GetParam() == Kind::kMemory) return MakeBorrowedMemoryStream(bytes, "input");
    if (GetParam() == Kind::kFile) {
      std::ofstream(directory_.path() + "/f", std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
      auto stream = OpenByteStream(directory_.path() + "/f", "input");
      return stream.ok() ? *std::move(stream) : nullptr;
    }
    int ends[2];
    if (::pipe(ends) != 0) return nullptr;
    writer_ = std::thread([end = ends[1], bytes] {
      size_t done = 0;
      while (done < bytes.size()) {
        const ssize_t count =
            ::write(end, bytes.data() + done, std::min<size_t>(bytes.size() - done, 1000));
        if (count <= 0) break;
        done += static_cast<size_t>(count);
      }
      ::close(end);
    });
    return MakeDescriptorStream(ends[0], "input");
  }

  void JoinWriter() {
    if (writer_.joinable()) writer_.join();
  }

 private:
  test::TempDir directory_;
  std::thread writer_;
};

TEST_P(ByteStreams, AnyOrderOfPeeksReadsAndSkipsSeesTheSameBytes) {
  const std::vector<uint8_t> bytes = Numbered(200000);
  const std::unique_ptr<ByteStream> stream = Open(bytes);
  ASSERT_NE(stream, nullptr);
  test::SeededRandom random(7);
  std::vector<uint8_t> out(70000);
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t wanted = 1 + random() % 5000;
    const size_t there = std::min(wanted, bytes.size() - at);
    const auto expect = [&](size_t count) {
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count),
                             bytes.begin() + static_cast<std::ptrdiff_t>(at)))
          << count << " bytes from " << at;
    };
    switch (random() % 4) {
      case 0: {
        const auto count = stream->Peek(std::span(out).first(wanted));
        ASSERT_OK(count);
        ASSERT_EQ(*count, there);
        expect(there);
        continue;
      }
      case 1: {
        const auto count = stream->Read(std::span(out).first(wanted));
        ASSERT_OK(count);
        ASSERT_GT(*count, 0u);
        expect(*count);
        at += *count;
        break;
      }
      case 2:
        ASSERT_OK(stream->ReadAll(std::span(out).first(there)));
        expect(there);
        at += there;
        break;
      default:
        ASSERT_OK(stream->Skip(there));
        at += there;
    }
    ASSERT_EQ(stream->position(), at);
  }
  const auto end = stream->Read(out);
  ASSERT_OK(end);
  EXPECT_EQ(*end, 0u);
}

TEST_P(ByteStreams, WhatIsMissingIsDataLoss) {
  for (const bool skip : {false, true}) {
    const std::vector<uint8_t> bytes = Numbered(5000);
    const std::unique_ptr<ByteStream> stream = Open(bytes);
    ASSERT_NE(stream, nullptr);
    std::array<uint8_t, 16> some;
    ASSERT_OK(stream->Peek(some));
    std::vector<uint8_t> out(5001);
    const absl::Status status = skip ? stream->Skip(kEiB) : stream->ReadAll(out);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("input: ends at byte 5000"));
    JoinWriter();
  }
}

INSTANTIATE_TEST_SUITE_P(All, ByteStreams,
                         testing::Values(Kind::kMemory, Kind::kFile, Kind::kPipe));

TEST(ByteStream, AFileThatGotShorterIsNoEnd) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/f";
  std::ofstream(path) << std::string(1000, 'x');
  auto stream = OpenByteStream(path);
  ASSERT_OK(stream);
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
  std::vector<uint8_t> out(1000);
  EXPECT_EQ((*stream)->ReadAll(out).code(), absl::StatusCode::kAborted);
}

TEST(ByteStream, WhatCannotBeReadIsRefused) {
  const test::TempDir directory;
  EXPECT_EQ(OpenByteStream(directory.path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenByteStream(directory.path() + "/none").status().code(),
            absl::StatusCode::kNotFound);
}

// A pipe whose writer is alive and silent.
TEST(ByteStream, SGAPipeIsNotWaitedForAfterTheStop) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(::write(ends[1], "abc", 3), 3);
  std::stop_source stop;
  const auto never = std::chrono::steady_clock::time_point::max();
  const std::unique_ptr<ByteStream> stream =
      MakeDescriptorStream(ends[0], "input", never, stop.get_token());
  std::array<uint8_t, 3> bytes;
  ASSERT_OK(stream->ReadAll(bytes));
  std::thread stopper([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.request_stop();
  });
  const absl::Status status = stream->Read(bytes).status();
  stopper.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  ::close(ends[1]);
}

// The time limit of a source ends such a wait, too.
TEST(ByteStream, SGAPipeIsNotWaitedForPastTheDeadline) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const std::unique_ptr<ByteStream> stream = MakeDescriptorStream(
      ends[0], "input", std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
  std::array<uint8_t, 3> bytes;
  EXPECT_EQ(stream->Read(bytes).status().code(), absl::StatusCode::kDeadlineExceeded);
  ::close(ends[1]);
}

}  // namespace byte_stream_test
}  // namespace cbt
