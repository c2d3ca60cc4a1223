// Leader election on a real API server, between processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "cbt/kube/typed_objects.h"
#include "tests/kube/support/bound_process.h"
#include "tests/kube/support/control_plane.h"
#include "tests/kube/watch/cache_probe.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace leader_election_live_test {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr auto kLivePatience = seconds(60);

class LeaderElectionLiveTest : public testing::Test {
 protected:
  void SetUp() override {
    CBT_NEED_CONTROL_PLANE();
    plane_ = &ControlPlane::Shared();
    plane_->CreateNamespace("election");
    plane_->CreateServiceAccount("election", "candidate");
    // No more than the documents say.
    plane_->Allow(
        "election", "election", "candidate",
        R"([{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["get","create","update"]}])",
        "election");
    kubeconfig_ = plane_->TokenKubeconfig(plane_->Token("election", "candidate"), "election");
    client_ = ValueOf(kube::Client::Create(
        ValueOf(kube::LoadKubeconfig({.files = {plane_->admin_kubeconfig()}}))));
  }

  std::unique_ptr<BoundProcess> Join(const std::string& lease, const std::string& identity) {
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "elector";
    return std::make_unique<BoundProcess>(
        std::vector<std::string>{program, kubeconfig_, "election", lease, identity},
        directory_ / identity);
  }
  std::string Said(const std::string& identity) const { return ReadFile(directory_ / identity); }
  kube::Lease LeaseOf(const std::string& name) {
    return ValueOf(client_->Get<kube::Lease>("election", name));
  }

  ControlPlane* plane_ = nullptr;
  TempDir directory_;
  std::string kubeconfig_;
  std::unique_ptr<kube::Client> client_;
};

TEST_F(LeaderElectionLiveTest, AnotherTakesOverFromOneThatIsKilled) {
  const auto one = Join("killed", "one");
  ASSERT_TRUE(Eventually([&] { return Said("one") == "started\n"; }, kLivePatience));
  const auto two = Join("killed", "two");
  std::this_thread::sleep_for(seconds(1));
  EXPECT_EQ(LeaseOf("killed").holder, "one");
  one->End(SIGKILL);
  const Clock::time_point killed = Clock::now();
  ASSERT_TRUE(Eventually([&] { return Said("two") == "started\n"; }, kLivePatience));
  EXPECT_GE(Clock::now() - killed, seconds(2)) << "before the lease can have expired";
  const kube::Lease lease = LeaseOf("killed");
  EXPECT_EQ(lease.holder, "two");
  EXPECT_EQ(lease.transitions, 1);
  EXPECT_EQ(lease.duration_seconds, 3);
  EXPECT_EQ(Said("one"), "started\n");
}

TEST_F(LeaderElectionLiveTest, ALeaderStopsWhenTheServerIsAwayAndGoesOnLater) {
  const auto one = Join("away", "one");
  ASSERT_TRUE(Eventually([&] { return Said("one") == "started\n"; }, kLivePatience));
  plane_->PauseApiServer();
  EXPECT_TRUE(Eventually([&] { return Said("one") == "started\nstopped\n"; }, seconds(4)));
  plane_->ContinueApiServer();
  EXPECT_TRUE(
      Eventually([&] { return Said("one") == "started\nstopped\nstarted\n"; }, kLivePatience));
}

}  // namespace leader_election_live_test
}  // namespace cbt::test
