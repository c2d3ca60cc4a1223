// A disk that waits for its server and for its host, with a real nbdkit and the kernel's FUSE.
#include "programs/driver/host/fuse_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file_io.h"
#include "programs/driver/host/host_message.h"
#include "tests/support/child_process.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::driver {
namespace fuse_disk_test {

constexpr uint64_t kSize = uint64_t{16} << 20;
constexpr size_t kBlock = 4096;
using namespace std::chrono_literals;

class FuseDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "not root";
    if (access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "no /dev/fuse";
    if (test::FindProgram("nbdkit").empty()) GTEST_SKIP() << "no nbdkit";
    mkdir(directory_.c_str(), 0700);
    std::ofstream(image_).close();
    std::filesystem::resize_file(image_, kSize);
    Serve();
  }
  void TearDown() override {
    // Requests that a failed test has left fail here.
    umount2(directory_.c_str(), MNT_FORCE | UMOUNT_NOFOLLOW);
    umount2(directory_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  }

  void Serve() {
    unlink(socket_.c_str());
    server_ = std::make_unique<test::ChildProcess>(
        std::vector<std::string>{"nbdkit", "-f", "-U", socket_, "file", "file=" + image_},
        scratch_ / "log");
    for (int i = 0; i < 4000 && server_->running(); ++i) {
      if (ConnectNbd(socket_).ok()) return;
      std::this_thread::sleep_for(5ms);
    }
    FAIL() << test::ReadFile(scratch_ / "log");
  }

  OwnedDescriptor Open(int flags = O_RDWR) const {
    return OwnedDescriptor(OpenFile(file_, flags | O_CLOEXEC));
  }
  static void Write(const OwnedDescriptor& file, uint64_t block, uint8_t byte) {
    const std::vector<uint8_t> bytes(kBlock, byte);
    ASSERT_EQ(pwrite(file.number(), bytes.data(), kBlock, static_cast<off_t>(block * kBlock)),
              static_cast<ssize_t>(kBlock))
        << errno;
  }
  // The byte that fills the block of the image.
  int InImage(uint64_t block) const {
    const OwnedDescriptor image(OpenFile(image_, O_RDONLY | O_CLOEXEC));
    std::string part(kBlock, '\0');
    if (pread(image.number(), part.data(), kBlock, static_cast<off_t>(block * kBlock)) !=
        static_cast<ssize_t>(kBlock)) {
      return -2;
    }
    return part == std::string(kBlock, part[0]) ? static_cast<uint8_t>(part[0]) : -1;
  }

  test::TempDir scratch_;
  const std::string directory_ = scratch_ / "mount";
  const std::string file_ = directory_ + "/disk";
  const std::string socket_ = scratch_ / "nbd";
  const std::string image_ = scratch_ / "image";
  std::unique_ptr<test::ChildProcess> server_;
};

TEST_F(FuseDiskTest, IsTheVolume) {
  ASSERT_OK_AND_ASSIGN(const auto disk, FuseDisk::Mount(directory_, socket_, kSize, false));
  struct stat status = {};
  ASSERT_EQ(stat(file_.c_str(), &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_size), kSize);
  const OwnedDescriptor file = Open();
  ASSERT_TRUE(file.has_value());
  for (uint64_t block = 0; block < 8; ++block) Write(file, block, 7);
  EXPECT_EQ(fsync(file.number()), 0);
  EXPECT_EQ(InImage(7), 7);
  EXPECT_EQ(InImage(8), 0);
  EXPECT_EQ(fallocate(file.number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kBlock, kBlock),
            0);
  EXPECT_EQ(
      fallocate(file.number(), FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 3 * kBlock, 2 * kBlock),
      0);
  std::vector<uint8_t> read(9 * kBlock, 1);
  ASSERT_EQ(pread(file.number(), read.data(), read.size(), 0), static_cast<ssize_t>(read.size()));
  for (uint64_t block = 0; block < 9; ++block) {
    const bool zero = block == 1 || block == 3 || block == 4 || block == 8;
    EXPECT_EQ(read[block * kBlock + 17], zero ? 0 : 7) << block;
  }
  // The last bytes, and nothing past them.
  EXPECT_EQ(pread(file.number(), read.data(), read.size(), kSize - 100), 100);
  EXPECT_EQ(pread(file.number(), read.data(), read.size(), kSize), 0);
  EXPECT_EQ(pwrite(file.number(), read.data(), 200, kSize - 100), -1);
  EXPECT_EQ(ftruncate(file.number(), 1), -1);
  EXPECT_FALSE(OwnedDescriptor(OpenFile(directory_ + "/other", O_RDONLY)).has_value());
  EXPECT_FALSE(disk->ended());
}

TEST_F(FuseDiskTest, ReadOnlyOnesAreNotWrittenTo) {
  ASSERT_OK_AND_ASSIGN(const auto disk, FuseDisk::Mount(directory_, socket_, kSize, true));
  EXPECT_FALSE(Open().has_value());
  const OwnedDescriptor file = Open(O_RDONLY);
  ASSERT_TRUE(file.has_value());
  std::vector<uint8_t> read(kBlock);
  EXPECT_EQ(pread(file.number(), read.data(), read.size(), 0), static_cast<ssize_t>(kBlock));
}

TEST_F(FuseDiskTest, UnmountingEndsIt) {
  ASSERT_OK_AND_ASSIGN(const auto disk, FuseDisk::Mount(directory_, socket_, kSize, false));
  ASSERT_EQ(umount2(directory_.c_str(), 0), 0);
  for (int i = 0; i < 1000 && !disk->ended(); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(disk->ended());
}

TEST_F(FuseDiskTest, NARequestsWaitForTheNextServer) {
  ASSERT_OK_AND_ASSIGN(const auto disk, FuseDisk::Mount(directory_, socket_, kSize, false));
  const OwnedDescriptor file = Open();
  ASSERT_TRUE(file.has_value());
  Write(file, 0, 1);
  // Kills in the middle of a stream of writes.
  std::atomic<uint64_t> written = 0;
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 0; !stop || i < 64; ++i) {
      Write(file, i % 1024, static_cast<uint8_t>(i / 1024 + 1));
      written = i + 1;
    }
  });
  for (int kills = 0; kills < 5; ++kills) {
    const uint64_t before = written;
    while (written < before + 20) std::this_thread::sleep_for(1ms);
    server_.reset();
    std::this_thread::sleep_for(50ms);
    Serve();
  }
  stop = true;
  writer.join();
  EXPECT_EQ(fsync(file.number()), 0);
  const uint64_t last = written;
  for (uint64_t i = last > 1024 ? last - 1024 : 0; i < last; ++i) {
    ASSERT_EQ(InImage(i % 1024), static_cast<uint8_t>(i / 1024 + 1)) << i << " of " << last;
  }
}

TEST_F(FuseDiskTest, NAAnotherProcessGoesOnWhereAKilledOneWas) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const OwnedDescriptor ours(pair[0]);
  OwnedDescriptor theirs(pair[1]);
  const pid_t child = fork();
  if (child == 0) {
    auto disk = FuseDisk::Mount(directory_, socket_, kSize, false);
    if (!disk.ok()) _exit(1);
    HostMessage message = EncodeSession("kept", "v", (*disk)->session());
    message.descriptor = (*disk)->Duplicate().value();
    if (!SendMessage(theirs.number(), message).ok()) _exit(2);
    for (;;) pause();
  }
  theirs = {};
  ASSERT_OK_AND_ASSIGN(HostMessage message, ReceiveMessage(ours.number(), 10s));
  ASSERT_OK_AND_ASSIGN(const FuseSession session, DecodeSession(message));
  ASSERT_TRUE(message.descriptor.has_value());
  OwnedDescriptor file = Open();
  ASSERT_TRUE(file.has_value());
  Write(file, 0, 1);
  // The process passes requests on, and gets no answer.
  server_->Signal(SIGSTOP);
  std::vector<std::thread> writers;
  for (uint64_t block = 1; block <= 6; ++block) {
    writers.emplace_back([&file, block] { Write(file, block, static_cast<uint8_t>(block)); });
  }
  std::this_thread::sleep_for(200ms);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  server_.reset();
  Serve();
  auto adopted = FuseDisk::Adopt(message.descriptor, session, socket_);
  if (!session.resends) {
    // What was read is lost, so the writers must fail.
    EXPECT_EQ(adopted.status().code(), absl::StatusCode::kFailedPrecondition);
    umount2(directory_.c_str(), MNT_FORCE);
    for (std::thread& writer : writers) writer.join();
    return;
  }
  ASSERT_OK(adopted.status());
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(fsync(file.number()), 0);
  for (uint64_t block = 1; block <= 6; ++block) {
    EXPECT_EQ(InImage(block), static_cast<int>(block));
  }
}

TEST_F(FuseDiskTest, NAAStoppedOneHasAnsweredWhatItRead) {
  ASSERT_OK_AND_ASSIGN(auto disk, FuseDisk::Mount(directory_, socket_, kSize, false));
  ASSERT_OK_AND_ASSIGN(OwnedDescriptor kept, disk->Duplicate());
  const OwnedDescriptor file = Open();
  ASSERT_TRUE(file.has_value());
  disk->Stop();
  FuseSession session = disk->session();
  EXPECT_TRUE(session.clean);
  disk.reset();
  std::thread writer([&] { Write(file, 5, 9); });
  std::this_thread::sleep_for(50ms);
  // Then any kernel will do.
  session.resends = false;
  ASSERT_OK_AND_ASSIGN(disk, FuseDisk::Adopt(kept, session, socket_));
  writer.join();
  EXPECT_EQ(fsync(file.number()), 0);
  EXPECT_EQ(InImage(5), 9);
}

// So SIGTERM loses nothing on any kernel while there is no server.
TEST_F(FuseDiskTest, NAWithoutAServerRequestsAreLeftToTheKernel) {
  ASSERT_OK_AND_ASSIGN(auto disk, FuseDisk::Mount(directory_, socket_, kSize, false));
  ASSERT_OK_AND_ASSIGN(OwnedDescriptor kept, disk->Duplicate());
  const OwnedDescriptor file = Open();
  ASSERT_TRUE(file.has_value());
  Write(file, 1, 1);
  server_.reset();
  std::thread writer([&] { Write(file, 5, 9); });
  std::this_thread::sleep_for(200ms);
  disk->Stop();
  FuseSession session = disk->session();
  EXPECT_TRUE(session.clean);
  disk.reset();
  session.resends = false;
  Serve();
  ASSERT_OK_AND_ASSIGN(disk, FuseDisk::Adopt(kept, session, socket_));
  writer.join();
  EXPECT_EQ(fsync(file.number()), 0);
  EXPECT_EQ(InImage(5), 9);
}

TEST_F(FuseDiskTest, NAOneThatLeftRequestsUnansweredIsNotClean) {
  ASSERT_OK_AND_ASSIGN(auto disk, FuseDisk::Mount(directory_, socket_, kSize, false));
  ASSERT_OK_AND_ASSIGN(OwnedDescriptor kept, disk->Duplicate());
  const OwnedDescriptor file = Open();
  ASSERT_TRUE(file.has_value());
  // A server has it when it ends.
  Write(file, 1, 1);
  server_->Signal(SIGSTOP);
  const std::vector<uint8_t> bytes(kBlock, 3);
  ssize_t result = 0;
  std::thread writer([&] { result = pwrite(file.number(), bytes.data(), kBlock, 0); });
  // Until it has been read, on a busy machine too.
  std::this_thread::sleep_for(1000ms);
  server_.reset();
  disk->Stop();
  FuseSession session = disk->session();
  EXPECT_FALSE(session.clean);
  disk.reset();
  session.resends = false;
  EXPECT_EQ(FuseDisk::Adopt(kept, session, socket_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  kept = {};
  writer.join();
  EXPECT_EQ(result, -1);
}

}  // namespace fuse_disk_test
}  // namespace cbt::driver
