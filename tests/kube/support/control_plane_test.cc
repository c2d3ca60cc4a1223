#include "tests/kube/support/control_plane.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace control_plane_test {

bool ExistsAndRuns(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t at = text.rfind(')');
  return at != std::string::npos && text.at(at + 2) != 'Z';
}

TEST(BoundProcessTest, EndsWithItsProcessHoweverThatEnds) {
  const TempDir directory;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Started from a thread that is gone when the process is killed.
    std::unique_ptr<BoundProcess> program;
    std::thread([&] {
      program = std::make_unique<BoundProcess>(std::vector<std::string>{"/bin/sleep", "600"},
                                               directory / "log");
    }).join();
    directory.Write("pid", std::to_string(program->running() ? program->pid() : 0));
    std::filesystem::rename(directory / "pid", directory / "complete");
    for (;;) pause();
  }
  while (!std::filesystem::exists(directory / "complete")) {
    ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const pid_t program = std::stoi(ReadFile(directory / "complete"));
  ASSERT_GT(program, 0);
  EXPECT_TRUE(ExistsAndRuns(program));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  for (int i = 0; i < 1000 && ExistsAndRuns(program); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(ExistsAndRuns(program));
}

TEST(BoundProcessTest, EndsAProgramThatIgnoresTheSignal) {
  const TempDir directory;
  BoundProcess program({"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"},
                       directory / "log");
  while (ReadFile(directory / "log") != "ready\n") {
    ASSERT_TRUE(program.running());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const pid_t pid = program.pid();
  program.End(SIGTERM, std::chrono::milliseconds(50));
  EXPECT_FALSE(program.running());
  EXPECT_NE(kill(pid, 0), 0);
}

class ControlPlaneTest : public testing::Test {
 protected:
  void SetUp() override { CBT_NEED_CONTROL_PLANE(); }
};

TEST_F(ControlPlaneTest, TokensDoWhatTheirRolesAllow) {
  ControlPlane& plane = ControlPlane::Shared();
  plane.CreateNamespace("roles");
  plane.CreateServiceAccount("roles", "reader");
  plane.Allow("roles-read", "roles", "reader",
              R"([{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}])", "roles");
  plane.Must("POST", "/api/v1/namespaces/roles/configmaps",
             R"({"metadata":{"name":"one"},"data":{"a":"b"}})");
  const std::string token = plane.Token("roles", "reader");
  EXPECT_EQ(plane.Get("/api/v1/namespaces/roles/configmaps/one", token).code, 200);
  EXPECT_EQ(plane.Get("/api/v1/namespaces/roles/configmaps", token).code, 403);
  EXPECT_EQ(plane.Get("/api/v1/namespaces/default/configmaps/one", token).code, 403);
  EXPECT_EQ(plane.Get("/api/v1/namespaces/roles/configmaps/one", token + "x").code, 401);
  // One for another audience is no token of the API server's.
  EXPECT_EQ(plane
                .Get("/api/v1/namespaces/roles/configmaps/one",
                     plane.Token("roles", "reader", {"somebody"}))
                .code,
            401);
  const std::string kubeconfig = plane.TokenKubeconfig(token, "roles");
  EXPECT_EQ(plane.Kubectl({"get", "configmap", "one", "-o", "name"}, "", kubeconfig).output,
            "configmap/one\n");
  const KubectlResult denied = plane.Kubectl({"get", "secret", "one"}, "", kubeconfig);
  EXPECT_EQ(denied.code, 1);
  EXPECT_NE(denied.error.find("forbidden"), std::string::npos) << denied.error;
}

TEST_F(ControlPlaneTest, StateOutlivesTheServer) {
  ControlPlane& plane = ControlPlane::Shared();
  plane.CreateNamespace("restart");
  plane.Must("POST", "/api/v1/namespaces/restart/configmaps", R"({"metadata":{"name":"one"}})");
  plane.StopApiServer();
  EXPECT_FALSE(plane.apiserver_running());
  EXPECT_EQ(plane.Get("/api/v1/namespaces/restart/configmaps/one").code, 0);
  plane.StartApiServer();
  EXPECT_EQ(plane.Get("/api/v1/namespaces/restart/configmaps/one").code, 200);
  plane.RestartApiServer(SIGKILL);
  EXPECT_EQ(plane.Get("/api/v1/namespaces/restart/configmaps/one").code, 200);
}

TEST_F(ControlPlaneTest, OldVersionsAreGoneAfterCompaction) {
  ControlPlane& plane = ControlPlane::Shared();
  const std::string one = plane.Must("GET", "/api/v1/namespaces/default");
  const size_t at = one.find("\"resourceVersion\":\"") + 19;
  const std::string version = one.substr(at, one.find('"', at) - at);
  plane.CreateNamespace("compact");
  plane.Compact();
  const ApiReply reply =
      plane.Get("/api/v1/configmaps?resourceVersionMatch=Exact&limit=1&resourceVersion=" + version);
  EXPECT_EQ(reply.code, 410) << reply.body;
}

TEST_F(ControlPlaneTest, ServesTheSnapshotCrds) {
  CBT_NEED_SNAPSHOT_CRDS();
  ControlPlane& plane = ControlPlane::Shared();
  plane.InstallSnapshotCrds();
  EXPECT_NE(plane.Must("GET", "/apis/snapshot.storage.k8s.io/v1/volumesnapshots")
                .find("VolumeSnapshotList"),
            std::string::npos);
}

}  // namespace control_plane_test
}  // namespace cbt::test
