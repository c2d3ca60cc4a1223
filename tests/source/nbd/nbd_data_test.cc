// Data over NBD, from and to real servers.
#include "source/nbd/nbd_data.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <new>
#include <random>
#include <thread>

#include "tests/support/child_process.h"
#include "tests/support/cursors.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace nbd_data_test {

using Bytes = std::vector<uint8_t>;
using test::ChildProcess;
using test::ValueOf;

class NbdDataTest : public testing::Test {
 protected:
  static bool Have(std::initializer_list<const char*> programs) {
    for (const char* program : programs) {
      if (test::FindProgram(program).empty()) return false;
    }
    return !absl::IsUnimplemented(NbdData::Open("nbd+unix:///?socket=none").status());
  }

  std::string Uri() const { return "nbd+unix:///?socket=" + directory_ / "socket"; }

  void Start(std::vector<std::string> command) {
    std::filesystem::remove(directory_ / "socket");
    server_ = std::make_unique<ChildProcess>(std::move(command), directory_ / "log");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!Listens() && server_->running() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  // Whether the socket, which is there before, takes connections. A try might be the only one that
  // the server takes.
  bool Listens() const {
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      if (line.ends_with(directory_ / "socket") && line.find(" 00010000 ") != std::string::npos) {
        return true;
      }
    }
    return false;
  }
  void StartNbdkit(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"nbdkit", "-f", "-U", directory_ / "socket"});
    Start(std::move(arguments));
  }
  std::string Image(const Bytes& bytes) {
    std::ofstream(directory_ / "image", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return directory_ / "image";
  }
  Bytes OnDisk() const {
    std::ifstream file(directory_ / "image", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static Bytes Noise(uint64_t seed, size_t size) {
    std::mt19937_64 random(seed);
    Bytes bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    return bytes;
  }

  // Random reads and writes of any alignment, by several threads, compared with `truth`.
  static void Exercise(NbdData& data, Bytes& truth, bool write) {
    constexpr size_t kThreads = 4;
    std::vector<std::thread> threads;
    // Each thread has a part of its own, whose ends lie within blocks.
    for (size_t t = 0; t < kThreads; ++t) {
      const size_t begin = truth.size() * t / kThreads;
      const size_t end = truth.size() * (t + 1) / kThreads;
      threads.emplace_back([&, begin, end, t] {
        std::mt19937_64 random(t);
        for (int i = 0; i < 60; ++i) {
          const size_t at = begin + random() % (end - begin);
          const size_t length =
              std::min<size_t>(end - at, random() % (i % 5 == 0 ? 600'000 : 9000));
          if (write && i % 3 == 1) {
            const Bytes fresh = Noise(random(), length);
            ASSERT_OK(data.Write(at, fresh));
            std::copy(fresh.begin(), fresh.end(), truth.begin() + static_cast<ptrdiff_t>(at));
          } else if (write && i % 3 == 2) {
            ASSERT_OK(data.WriteZeros({at, length}));
            std::fill_n(truth.begin() + static_cast<ptrdiff_t>(at), length, 0);
          } else {
            Bytes got(length);
            ASSERT_OK(data.Read(at, got));
            ASSERT_TRUE(
                std::equal(got.begin(), got.end(), truth.begin() + static_cast<ptrdiff_t>(at)))
                << at << ' ' << length;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  test::TempDir directory_;
  std::unique_ptr<ChildProcess> server_;
};

TEST_F(NbdDataTest, ReadsWithOneClientOnly) {
  if (!Have({"qemu-nbd"})) GTEST_SKIP() << "qemu-nbd is not installed";
  Bytes truth = Noise(1, 3'000'000 / 512 * 512);
  std::fill_n(truth.begin() + 1'000'000, 1'000'000, 0);
  // It ends with its first client.
  Start({"qemu-nbd", "--read-only", "--format=raw", "--socket=" + directory_ / "socket",
         Image(truth)});
  const auto data = ValueOf(NbdData::Open(Uri()));
  EXPECT_EQ(data->size(), truth.size());
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(ValueOf(test::Drain(*ValueOf(data->Allocated()))).empty());
    Exercise(*data, truth, false);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(data->CheckWritable()));
  Bytes past(2);
  EXPECT_TRUE(absl::IsOutOfRange(data->Read(truth.size() - 1, past)));
}

TEST_F(NbdDataTest, WritesOverSeveralConnections) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  for (const char* block : {"1", "4096"}) {
    Bytes truth = Noise(2, 2'097'152);
    StartNbdkit({"--filter=blocksize-policy", "file", Image(truth),
                 std::string("blocksize-minimum=") + block, "blocksize-maximum=131072",
                 "blocksize-preferred=4096", "blocksize-error-policy=error"});
    auto data = ValueOf(NbdData::Open(Uri()));
    ASSERT_OK(data->CheckWritable());
    Exercise(*data, truth, true);
    ASSERT_OK(data->Flush());
    EXPECT_TRUE(OnDisk() == truth) << block;
    data.reset();
  }
}

TEST_F(NbdDataTest, WritesZerosWhereTheServerHasNone) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  Bytes truth = Noise(3, 1 << 20);
  StartNbdkit({"--filter=nozero", "--filter=noextents", "file", Image(truth)});
  const auto data = ValueOf(NbdData::Open(Uri()));
  Exercise(*data, truth, true);
  ASSERT_OK(data->Flush());
  EXPECT_TRUE(OnDisk() == truth);
}

TEST_F(NbdDataTest, ServersWithoutStructuredRepliesHaveData) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  Bytes truth = Noise(4, 1 << 20);
  StartNbdkit({"--no-sr", "file", Image(truth)});
  const auto data = ValueOf(NbdData::Open(Uri()));
  EXPECT_TRUE(absl::IsFailedPrecondition(data->Allocated().status()));
  Exercise(*data, truth, true);
  EXPECT_TRUE(OnDisk() == truth);
}

// What the server was asked to read, of everything that nbdkit's log filter saw.
uint64_t BytesRead(const std::string& log) {
  std::ifstream file(log);
  uint64_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t count = line.find(" count=");
    if (line.find(" Read ") == std::string::npos || count == std::string::npos) continue;
    bytes += std::stoull(line.substr(count + 7), nullptr, 0);
  }
  return bytes;
}

class ReadDataTest : public NbdDataTest {
 protected:
  // Serves `truth` with these filters in front, reads it in pieces of which `piece` says the size,
  // and compares. Returns how much the server read.
  uint64_t Read(const Bytes& truth, std::vector<std::string> filters,
                std::vector<std::string> parameters, size_t piece) {
    const std::string log = directory_ / "read.log";
    std::filesystem::remove(log);
    filters.insert(filters.begin(), "--filter=log");
    filters.insert(filters.end(), {"file", Image(truth), "logfile=" + log});
    filters.insert(filters.end(), parameters.begin(), parameters.end());
    StartNbdkit(filters);
    {
      const auto data = ValueOf(NbdData::Open(Uri()));
      for (size_t at = 0; at < truth.size(); at += piece) {
        Bytes got(std::min(piece, truth.size() - at), 0xee);
        EXPECT_OK(data->ReadData(at, got));
        EXPECT_TRUE(std::equal(got.begin(), got.end(), truth.begin() + static_cast<ptrdiff_t>(at)))
            << at;
      }
      Bytes past(2);
      EXPECT_TRUE(absl::IsOutOfRange(data->ReadData(truth.size() - 1, past)));
    }
    server_.reset();
    return BytesRead(log);
  }
  std::string Extents(const std::string& lines) {
    std::ofstream(directory_ / "extents") << lines;
    return "extentlist=" + directory_ / "extents";
  }
};

TEST_F(ReadDataTest, SkipsWhatTheServerKnowsToBeZero) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  // Data at 1 MiB, at 20 MiB with a short run of zeros in it, and at the end.
  Bytes truth((32 << 20) + 512);
  const auto fill = [&](size_t begin, size_t length) {
    const Bytes noise = Noise(begin, length);
    std::copy(noise.begin(), noise.end(), truth.begin() + static_cast<ptrdiff_t>(begin));
  };
  fill(1 << 20, 100'000);
  fill(20 << 20, 65536);
  fill((20 << 20) + 131072, 65536);
  fill(32 << 20, 512);
  const std::string list = Extents(
      "0 1M 3\n1M 128K 0\n1152K 18M 2\n20M 64K 0\n20544K 64K 3\n20608K 64K 0\n"
      "20672K 12096K 3\n32M 512 0\n");
  constexpr uint64_t kData = 131072 + 3 * 65536 + 512;
  const std::vector<std::string> extents = {"--filter=extentlist"};
  for (const size_t piece : {1u << 20, 3u << 20, 100u << 20}) {
    EXPECT_EQ(Read(truth, extents, {list}, piece), kData) << piece;
  }
  // Whatever is asked for.
  const uint64_t read = Read(truth, extents, {list}, 777'777);
  EXPECT_GE(read, kData - 65536);
  EXPECT_LE(read, kData);
  // In blocks of the server's.
  truth.resize(32 << 20);
  const std::vector<std::string> blocks = {"--filter=blocksize-policy", "--filter=extentlist"};
  EXPECT_LE(Read(truth, blocks,
                 {list, "blocksize-minimum=4096", "blocksize-preferred=4096",
                  "blocksize-maximum=1M", "blocksize-error-policy=error"},
                 777'777),
            kData + 65536);
}

// A server may answer about less than it was asked for.
TEST_F(ReadDataTest, ReadsWhatAnAnswerLeavesOut) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  Bytes truth = Noise(8, 1 << 20);
  std::fill_n(truth.begin(), 256 << 10, 0);
  const std::string log = directory_ / "short.log";
  StartNbdkit({"--filter=log", "eval", "logfile=" + log, "get_size=stat -L -c %s " + Image(truth),
               "pread=dd if=" + directory_ / "image" +
                   " skip=$4 count=$3 iflag=skip_bytes,count_bytes status=none",
               "extents=test $4 = 0 && echo 0 256K hole,zero || echo $4 4096"});
  const auto data = ValueOf(NbdData::Open(Uri()));
  Bytes got(truth.size(), 0xee);
  for (const size_t at : {0u, 512u << 10}) {
    ASSERT_OK(data->ReadData(at, std::span(got).subspan(at, 512 << 10)));
  }
  EXPECT_TRUE(got == truth);
  server_.reset();
  EXPECT_EQ(BytesRead(log), truth.size() - (256 << 10));
}

TEST_F(ReadDataTest, ReadsEverythingElse) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  const Bytes truth = Noise(7, 3 << 20);
  const uint64_t all = truth.size();
  // A hole may hold anything.
  EXPECT_EQ(Read(truth, {"--filter=extentlist"}, {Extents("0 3M 1\n")}, 1 << 20), all);
  EXPECT_EQ(Read(truth, {"--filter=noextents"}, {}, 1 << 20), all);
  EXPECT_EQ(Read(truth, {"--no-sr"}, {}, 1 << 20), all);
  for (const char* error : {"EIO", "EINVAL", "ENOSPC"}) {
    EXPECT_EQ(Read(truth, {"--filter=error", "--filter=extentlist"},
                   {Extents("0 3M 0\n"), std::string("error-extents=") + error,
                    "error-extents-rate=100%"},
                   1 << 20),
              all)
        << error;
  }
}

TEST_F(NbdDataTest, ErrorsOfTheServerLast) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  StartNbdkit({"--filter=error", "memory", "4M", "error=EIO", "error-rate=100%",
               "error-file=" + directory_ / "broken"});
  const auto data = ValueOf(NbdData::Open(Uri()));
  Bytes bytes(1 << 20);
  ASSERT_OK(data->Read(0, bytes));
  std::ofstream(directory_ / "broken").put('x');
  const absl::Status broken = data->Read(0, bytes);
  EXPECT_TRUE(absl::IsUnavailable(broken)) << broken;
  std::filesystem::remove(directory_ / "broken");
  // Another export may be there by now.
  EXPECT_EQ(data->Read(0, bytes), broken);
  EXPECT_EQ(data->Write(0, bytes), broken);
}

TEST_F(NbdDataTest, AServerThatEndsIsAnError) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  StartNbdkit({"memory", "64M"});
  const auto data = ValueOf(NbdData::Open(Uri()));
  Bytes bytes(1 << 20);
  ASSERT_OK(data->Read(0, bytes));
  std::vector<std::thread> threads;
  std::atomic<int> errors{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Bytes mine(1 << 20);
      while (data->Read(5, mine).ok()) {
      }
      ++errors;
    });
  }
  server_.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 4);
}

#ifndef CBT_TEST_SANITIZED
// The only connection must not be lost with the exception: others would wait for it without end.
TEST_F(NbdDataTest, ARequestThatThrowsEndsTheOthers) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  StartNbdkit({"--filter=blocksize-policy", "pattern", "1E", "blocksize-minimum=4096",
               "blocksize-preferred=4096", "blocksize-maximum=1M", "blocksize-error-policy=error"});
  const auto data = ValueOf(NbdData::Open(Uri(), {}, 1));
  Bytes bytes(4096);
  ASSERT_OK(data->Read(0, bytes));
  // A buffer for whole blocks is more than any machine has.
  const std::span<uint8_t> huge(bytes.data(), size_t{1} << 55);
  EXPECT_THROW(data->Read(1, huge).IgnoreError(), std::bad_alloc);
  std::promise<absl::Status> next;
  std::thread other([&] { next.set_value(data->Read(0, bytes)); });
  std::future<absl::Status> answer = next.get_future();
  if (answer.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
    ADD_FAILURE() << "the next request waits";
    std::abort();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(answer.get()));
  other.join();
}
#endif

TEST_F(NbdDataTest, ASlowServerIsGivenUp) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "nbdkit is not installed";
  StartNbdkit({"--filter=delay", "memory", "1M", "rdelay=30"});
  NbdExportOptions options;
  options.timeout = std::chrono::milliseconds(300);
  const auto data = ValueOf(NbdData::Open(Uri(), options));
  Bytes bytes(4096);
  const absl::Status late = data->Read(0, bytes);
  EXPECT_TRUE(absl::IsUnavailable(late)) << late;
  EXPECT_NE(late.message().find("no reply"), std::string_view::npos) << late;
}

TEST(NbdUris, AreTold) {
  for (const char* uri : {"nbd://h/x", "nbds://h", "nbd+unix:///?socket=s", "nbds+unix://"}) {
    EXPECT_TRUE(IsNbdUri(uri)) << uri;
  }
  for (const char* other : {"", "nbd", "/dev/nbd0", "nbd:/", "http://h", "./nbd://h"}) {
    EXPECT_FALSE(IsNbdUri(other)) << other;
  }
}

}  // namespace nbd_data_test
}  // namespace cbt
