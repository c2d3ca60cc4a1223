// What keeps volumes attached, in this process, with a real nbdkit, its plugin and the kernel's
// FUSE.
#include "programs/driver/host/volume_host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file_io.h"
#include "cbt/units.h"
#include "programs/driver/host/host_message.h"
#include "programs/driver/host/host_server.h"
#include "programs/driver/host/nbd_connection.h"
#include "programs/driver/system/mounts.h"
#include "programs/driver/system/process.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/child_process.h"
#include "tests/support/no_threads.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::driver {
namespace volume_host_test {

using namespace std::chrono_literals;
using namespace units;
using State = VolumeHealth::State;

// What a driver keeps.
class Observer final : public HostObserver {
 public:
  void Kept(const std::string& volume, const FuseSession& session,
            OwnedDescriptor connection) override {
    const std::lock_guard lock(mutex);
    if (connection.has_value()) {
      kept[volume] = std::move(connection);
    } else if (unread_when_unclean == -1 && !session.clean && kept.contains(volume)) {
      // Time for workers that were too early to read.
      std::this_thread::sleep_for(200ms);
      pollfd ask = {.fd = kept[volume].number(), .events = POLLIN, .revents = 0};
      unread_when_unclean = poll(&ask, 1, 0) > 0 ? 1 : 0;
    }
    sessions[volume] = session;
  }
  void Dropped(const std::string& volume) override {
    const std::lock_guard lock(mutex);
    kept.erase(volume);
    health.erase(volume);
  }
  void Changed(const std::string& volume, const VolumeHealth& now) override {
    const std::lock_guard lock(mutex);
    health[volume] = now;
    changes.push_back(now);
  }

  std::mutex mutex;
  std::map<std::string, FuseSession> sessions;
  std::map<std::string, OwnedDescriptor> kept;
  std::map<std::string, VolumeHealth> health;
  std::vector<VolumeHealth> changes;
  int unread_when_unclean = -1;
};

class VolumeHostTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "not root";
    if (access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "no /dev/fuse";
    if (test::FindProgram("nbdkit").empty()) GTEST_SKIP() << "no nbdkit";
    for (const std::string& id : {kFirst, kSecond}) {
      std::filesystem::create_directories(paths_.Directory(id));
      test::RequireOk(volume::TrackedVolume::Create(paths_.Volume(id), 16_MiB, {}));
    }
    Begin();
  }
  void TearDown() override {
    host_.reset();
    for (const std::string& id : {kFirst, kSecond}) {
      umount2(paths_.FuseDirectory(id).c_str(), MNT_FORCE | UMOUNT_NOFOLLOW);
      umount2(paths_.FuseDirectory(id).c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    }
  }
  void Begin() {
    host_ = std::make_unique<VolumeHost>(paths_, options_);
    host_->SetObserver(&observer_);
  }
  // Another host gets what the driver has kept of this one.
  void Replace(bool clean, bool resends) {
    host_->Drain();
    host_.reset();
    host_ = std::make_unique<VolumeHost>(paths_, options_);
    FuseSession session = observer_.sessions[kFirst];
    session.clean = clean;
    session.resends = resends;
    host_->Adopt(kFirst, session,
                 OwnedDescriptor(fcntl(observer_.kept[kFirst].number(), F_DUPFD_CLOEXEC, 3)));
    host_->SetObserver(&observer_);
  }
  bool WaitForState(State state) {
    for (int i = 0; i < 4000; ++i) {
      {
        const std::lock_guard lock(observer_.mutex);
        if (observer_.health[kFirst].state == state) return true;
      }
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  OwnedDescriptor Open() const {
    return OwnedDescriptor(OpenFile(paths_.FuseFile(kFirst), O_RDWR | O_CLOEXEC));
  }
  int ServerOf(const std::string& id) const { return std::stoi(FirstLine(paths_.PidFile(id))); }

  const std::string kFirst = "first";
  const std::string kSecond = "second";
  test::TempDir scratch_;
  const VolumePaths paths_{scratch_ / "s"};
  ServerOptions options_ = {.plugin = CBT_NBDKIT_PLUGIN};
  Observer observer_;
  std::unique_ptr<VolumeHost> host_;
};

// As on a kernel before 6.9, whose host was killed.
TEST_F(VolumeHostTest, NAADeviceWhoseRequestsAreLostIsReportedAsFailed) {
  ASSERT_OK(host_->Serve({.volume = kFirst}));
  const OwnedDescriptor user = Open();
  ASSERT_TRUE(user.has_value());
  ASSERT_OK_AND_ASSIGN(const auto before, MountedAt(paths_.FuseDirectory(kFirst)));
  Replace(/*clean=*/false, /*resends=*/false);
  EXPECT_TRUE(absl::IsDataLoss(host_->Serve({.volume = kFirst, .again = true})));
  EXPECT_EQ(observer_.health[kFirst].state, State::kFailed);
  EXPECT_NE(observer_.health[kFirst].error, "");
  char byte = 0;
  EXPECT_EQ(pread(user.number(), &byte, 1, 0), -1);
  // Nothing is mounted behind it, by no call, that would look as if it were served.
  EXPECT_TRUE(absl::IsDataLoss(host_->Serve({.volume = kFirst, .again = true})));
  ASSERT_OK_AND_ASSIGN(const auto after, MountedAt(paths_.FuseDirectory(kFirst)));
  EXPECT_EQ(before, after);
  // A driver that comes later hears it too.
  observer_.health.clear();
  host_->SetObserver(&observer_);
  EXPECT_EQ(observer_.health[kFirst].state, State::kFailed);
  ASSERT_OK(host_->Stop(kFirst));
  EXPECT_FALSE(observer_.health.contains(kFirst));
  ASSERT_OK(host_->Serve({.volume = kFirst}));
  EXPECT_TRUE(Open().has_value());
  ASSERT_OK(host_->Stop(kFirst));
}

TEST_F(VolumeHostTest, NAADeviceWithoutAnyConnectionIsReportedAsFailed) {
  EXPECT_TRUE(absl::IsDataLoss(host_->Serve({.volume = kFirst, .again = true})));
  EXPECT_EQ(observer_.health[kFirst].state, State::kFailed);
  ASSERT_OK(host_->Stop(kFirst));
}

TEST_F(VolumeHostTest, NAASessionIsTakenForUncleanBeforeAnythingIsRead) {
  ASSERT_OK(host_->Serve({.volume = kFirst}));
  const OwnedDescriptor user = Open();
  ASSERT_TRUE(user.has_value());
  host_->Drain();
  ASSERT_TRUE(observer_.sessions[kFirst].clean);
  ssize_t written = 0;
  std::thread writer([&] { written = pwrite(user.number(), "x", 1, 0); });
  std::this_thread::sleep_for(100ms);
  Replace(/*clean=*/true, /*resends=*/false);
  ASSERT_OK(host_->Serve({.volume = kFirst, .again = true}));
  writer.join();
  EXPECT_EQ(written, 1);
  EXPECT_EQ(observer_.unread_when_unclean, 1);
  EXPECT_FALSE(observer_.sessions[kFirst].clean);
}

TEST_F(VolumeHostTest, NAAServerAloneThatIsShownAsAFileLaterIsStartedAgain) {
  ASSERT_OK(host_->Serve({.volume = kFirst, .file = false}));
  ASSERT_OK(host_->Serve({.volume = kFirst, .file = true}));
  const OwnedDescriptor user = Open();
  ASSERT_TRUE(user.has_value());
  const int server = ServerOf(kFirst);
  kill(server, SIGKILL);
  EXPECT_EQ(pwrite(user.number(), "x", 1, 0), 1);
  EXPECT_NE(ServerOf(kFirst), server);
}

TEST_F(VolumeHostTest, NAAServerAloneThatHasEndedIsStartedByTheNextCall) {
  ASSERT_OK(host_->Serve({.volume = kFirst, .file = false}));
  kill(ServerOf(kFirst), SIGKILL);
  EXPECT_TRUE(WaitForState(State::kFailed));
  ASSERT_OK(host_->Serve({.volume = kFirst, .file = true}));
  const OwnedDescriptor user = Open();
  kill(ServerOf(kFirst), SIGKILL);
  EXPECT_EQ(pwrite(user.number(), "x", 1, 0), 1);
  EXPECT_TRUE(WaitForState(State::kServing));
}

TEST_F(VolumeHostTest, NAAServerThatEndsSoonAgainAndAgainIsStartedAfterGrowingPauses) {
  ASSERT_OK(host_->Serve({.volume = kFirst}));
  const OwnedDescriptor user = Open();
  uint64_t ended = 0;
  for (const auto begin = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - begin < 3s;) {
    {
      const std::lock_guard lock(observer_.mutex);
      const VolumeHealth& now = observer_.health[kFirst];
      if (now.serving() && now.restarts == ended) {
        kill(ServerOf(kFirst), SIGKILL);
        ++ended;
      }
    }
    std::this_thread::sleep_for(1ms);
  }
  // At once, at once, and then after 0.1, 0.2, 0.4, 0.8 and 1.6 seconds.
  EXPECT_GE(ended, 3u);
  EXPECT_LE(ended, 7u);
  // No request fails, and one that lives is started again at once.
  EXPECT_EQ(pwrite(user.number(), "x", 1, 0), 1);
  EXPECT_TRUE(WaitForState(State::kServing));
  {
    const std::lock_guard lock(observer_.mutex);
    EXPECT_TRUE(std::any_of(observer_.changes.begin(), observer_.changes.end(),
                            [](const VolumeHealth& one) {
                              return one.state == State::kWaiting &&
                                     one.error.find("after a pause") != std::string::npos;
                            }));
    observer_.changes.clear();
  }
  std::this_thread::sleep_for(1200ms);
  kill(ServerOf(kFirst), SIGKILL);
  EXPECT_EQ(pwrite(user.number(), "x", 1, 0), 1);
  EXPECT_TRUE(WaitForState(State::kServing));
  const std::lock_guard lock(observer_.mutex);
  ASSERT_FALSE(observer_.changes.empty());
  EXPECT_EQ(observer_.changes.front().state, State::kStarting);
}

TEST_F(VolumeHostTest, NAServersAreNotSparedWhenMemoryIsShort) {
  options_.memory_score = "321";
  Begin();
  ASSERT_OK(host_->Serve({.volume = kFirst}));
  EXPECT_EQ(FirstLine("/proc/" + std::to_string(ServerOf(kFirst)) + "/oom_score_adj"), "321");
}

TEST_F(VolumeHostTest, NAAVolumeThatCanNotBeOpenedSaysWhyAtOnce) {
  for (const auto& entry : std::filesystem::directory_iterator(paths_.Volume(kFirst))) {
    if (entry.path().filename() == "data" || !entry.is_regular_file()) continue;
    std::ofstream(entry.path(), std::ios::trunc) << "damaged";
  }
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status served = host_->Serve({.volume = kFirst});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_TRUE(absl::IsUnavailable(served));
  EXPECT_NE(served.message().find(paths_.Volume(kFirst)), std::string::npos) << served;
  EXPECT_FALSE(observer_.health.contains(kFirst));
}

TEST_F(VolumeHostTest, NAADriverDoesNotWaitForACallThatRuns) {
  const std::string program = scratch_ / "nbdkit";
  std::ofstream(program) << "#!/bin/sh\nexec sleep 60\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string path = getenv("PATH");
  setenv("PATH", (std::filesystem::path(program).parent_path().string() + ":" + path).c_str(), 1);
  options_.start_time = 2s;
  Begin();
  std::atomic<bool> ended = false;
  std::thread call([&] {
    EXPECT_TRUE(absl::IsUnavailable(host_->Serve({.volume = kFirst})));
    ended = true;
  });
  std::this_thread::sleep_for(300ms);
  Observer driver;
  host_->SetObserver(&driver);
  EXPECT_FALSE(ended);
  // That it is not known is reported, and differs from a volume that is not attached.
  EXPECT_EQ(driver.health[kFirst].state, State::kWaiting);
  call.join();
  EXPECT_FALSE(driver.health.contains(kFirst));
  setenv("PATH", path.c_str(), 1);
  host_.reset();
}

TEST_F(VolumeHostTest, MGServersThatClientsKeepAreAskedToEndTogetherAndSaySo) {
  options_.end_time = 2s;
  Begin();
  for (const std::string& id : {kFirst, kSecond}) {
    ASSERT_OK(host_->Serve({.volume = id, .file = false}));
  }
  ASSERT_OK_AND_ASSIGN(NbdHandle first, ConnectNbd(paths_.NbdSocket(kFirst)));
  ASSERT_OK_AND_ASSIGN(NbdHandle second, ConnectNbd(paths_.NbdSocket(kSecond)));
  const absl::Status stopped = host_->Stop(kFirst);
  if (!stopped.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(stopped)) << stopped;
    EXPECT_NE(stopped.message().find(paths_.NbdSocket(kFirst)), std::string::npos) << stopped;
  }
  const auto begin = std::chrono::steady_clock::now();
  host_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3500ms);
  first.reset();
  second.reset();
  VolumeHost other(paths_, options_);
  EXPECT_OK(other.Stop(kFirst));
  EXPECT_OK(other.Stop(kSecond));
}

class HostServerTest : public VolumeHostTest {
 protected:
  absl::Status Ask(const char* verb) const {
    const auto socket = ConnectHost(paths_.HostSocket());
    if (!socket.ok()) return socket.status();
    const absl::Status sent =
        SendMessage(socket->number(),
                    {.fields = {{"do", verb}, {"volume", kId}, {"file", "1"}}, .descriptor = {}});
    if (!sent.ok()) return sent;
    const auto answer = ReceiveMessage(socket->number(), 60s);
    return answer.ok() ? DecodeStatus(*answer) : answer.status();
  }
  const std::string kId = "vol-0123456789abcdef01234567";
};

TEST_F(HostServerTest, NANothingIsAttachedBeforeADriverHasGivenBackWhatItKeeps) {
  ASSERT_OK_AND_ASSIGN(const auto server,
                       HostServer::Start({.state_directory = scratch_ / "s"}, 0s));
  EXPECT_TRUE(absl::IsUnavailable(Ask("serve"))) << Ask("serve");
  EXPECT_TRUE(absl::IsUnavailable(Ask("stop")));
}

TEST_F(HostServerTest, NAAHostWithoutThreadsGoesOn) {
  ASSERT_OK_AND_ASSIGN(const auto server,
                       HostServer::Start({.state_directory = scratch_ / "s"}, 0s));
  {
    const test::NoThreads none;
    EXPECT_TRUE(absl::IsResourceExhausted(Ask("stop"))) << Ask("stop");
  }
  EXPECT_TRUE(absl::IsUnavailable(Ask("stop")));
}

TEST_F(VolumeHostTest, NAAVolumeWithoutThreadsIsAttachedLater) {
  {
    const test::NoThreads none;
    EXPECT_TRUE(absl::IsResourceExhausted(host_->Serve({.volume = kFirst})));
  }
  ASSERT_OK(host_->Serve({.volume = kFirst}));
  // Nor is a session lost that can't be gone on with at once.
  Replace(/*clean=*/true, /*resends=*/false);
  {
    const test::NoThreads none;
    EXPECT_TRUE(absl::IsResourceExhausted(host_->Serve({.volume = kFirst, .again = true})));
    EXPECT_EQ(observer_.health[kFirst].state, State::kWaiting);
    EXPECT_TRUE(observer_.sessions[kFirst].clean);
  }
  EXPECT_OK(host_->Serve({.volume = kFirst, .again = true}));
  EXPECT_EQ(observer_.health[kFirst].state, State::kServing);
}

}  // namespace volume_host_test
}  // namespace cbt::driver
