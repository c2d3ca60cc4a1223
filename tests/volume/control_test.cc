#include "programs/volume/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "cbt/units.h"
#include "programs/volume/control_lines.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::volume {
namespace control_test {

using test::ValueOf;
using namespace units;

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    test::RequireOk(TrackedVolume::Create(directory_ / "v", 1_MiB, {.name = "vol \"1\""}));
    volume_ = ValueOf(TrackedVolume::Open(directory_ / "v"));
  }

  std::string socket() const { return directory_ / "s"; }
  void Start(ControlServerOptions options = {}) {
    options.path = socket();
    server_ = ValueOf(ControlServer::Start(*volume_, options));
  }
  std::unique_ptr<ControlClient> Connect() const {
    return ValueOf(ControlClient::Connect(socket(), 30));
  }

  // A connection without a client.
  OwnedDescriptor Dial() const {
    OwnedDescriptor raw(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = ValueOf(SocketAddress(socket()));
    EXPECT_EQ(connect(raw.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    return raw;
  }
  static std::string Ask(int raw, const std::string& text) {
    EXPECT_EQ(send(raw, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    LineChannel channel(raw, kMaxAnswerBytes);
    const auto line = channel.Read(LineChannel::Clock::now() + std::chrono::seconds(30));
    return line.ok() ? *line : line.status().ToString();
  }

  test::TempDir directory_;
  std::unique_ptr<TrackedVolume> volume_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlTest, EveryRequestIsCarriedOut) {
  Start();
  const auto client = Connect();
  ASSERT_OK_AND_ASSIGN(const SnapshotInfo taken, client->TakeSnapshot("a"));
  EXPECT_EQ(taken.id, "a");
  EXPECT_EQ(taken.size, 1_MiB);
  EXPECT_GT(taken.created_ns, int64_t{1'500'000'000} * 1'000'000'000);
  EXPECT_EQ(ValueOf(client->TakeSnapshot("a")).created_ns, taken.created_ns);
  ASSERT_OK(client->TakeSnapshot("b"));
  ASSERT_TRUE(volume_->WaitForCopies(60));
  EXPECT_EQ(ValueOf(client->ListSnapshots()), volume_->snapshots());
  EXPECT_EQ(ValueOf(client->FindSnapshot("b")), volume_->snapshots()[1]);
  ASSERT_OK(volume_->Write(5000, std::vector<uint8_t>(10, 1), Durability::kCached));
  ASSERT_OK(client->Resize(2_MiB));
  ASSERT_OK_AND_ASSIGN(const VolumeStatus status, client->Status());
  EXPECT_EQ(status.name, "vol \"1\"");
  EXPECT_EQ(status.capacity, 2_MiB);
  EXPECT_EQ(status.granularity, 4_KiB);
  EXPECT_EQ(status.snapshots, 2u);
  EXPECT_EQ(status.copying, 0u);
  EXPECT_EQ(status.changed_bytes, 4_KiB);
  EXPECT_TRUE(status.exact);
  ASSERT_OK(client->DeleteSnapshot("a"));
  EXPECT_EQ(volume_->snapshots().size(), 1u);

  // Errors arrive as they are.
  EXPECT_EQ(client->FindSnapshot("a").status(), volume_->FindSnapshot("a").status());
  EXPECT_EQ(client->Resize(1), volume_->Resize(1));
  EXPECT_EQ(client->TakeSnapshot("../x").status(), volume_->TakeSnapshot("../x").status());
}

TEST_F(ControlTest, ListHasAsManyPagesAsItTakes) {
  Start();
  for (int i = 0; i < 1005; ++i) ASSERT_OK(volume_->TakeSnapshot(absl::StrCat("s", i)));
  ASSERT_TRUE(volume_->WaitForCopies(60));
  EXPECT_EQ(ValueOf(Connect()->ListSnapshots()), volume_->snapshots());
  const OwnedDescriptor raw = Dial();
  EXPECT_EQ(ValueOf(DecodeAnswer(Ask(raw.number(), "{\"request\":\"list\"}\n"))).snapshots.size(),
            kMaxPage);
  EXPECT_TRUE(absl::IsAborted(
      ValueOf(DecodeAnswer(Ask(raw.number(), "{\"request\":\"list\",\"after\":\"x\"}\n"))).status));
}

TEST_F(ControlTest, RubbishIsRefusedAndHarmsNobody) {
  Start();
  for (const std::string line :
       {"", "{", "[]", "null", "{}", "{\"request\":1}", "{\"request\":\"format\"}",
        "{\"request\":\"snapshot\"}", "{\"request\":\"snapshot\",\"id\":7}",
        "{\"request\":\"revert\"}", "{\"request\":\"resize\",\"capacity\":-1}",
        "{\"request\":\"resize\",\"capacity\":1e99}", "{\"request\":\"resize\",\"capacity\":\"5\"}",
        "\xff\xfe", "{\"request\":\"\xff\"}", "{\"request\":\"list\",\"after\":[]}",
        "{\"request\":\"hold\"}", "{\"request\":\"hold\",\"seconds\":-1}"}) {
    const auto answer = ValueOf(DecodeAnswer(Ask(Dial().number(), line + "\n")));
    EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << line;
  }
  // Nesting within the limit of a line; a line without an end.
  EXPECT_TRUE(absl::IsInvalidArgument(
      ValueOf(DecodeAnswer(Ask(Dial().number(), std::string(60'000, '[') + "\n"))).status));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ValueOf(DecodeAnswer(Ask(Dial().number(), std::string(kMaxRequestBytes + 1, 'x')))).status));
  EXPECT_OK(Connect()->Status());
  EXPECT_TRUE(volume_->snapshots().empty());
}

TEST_F(ControlTest, ClientThatVanishesHarmsNothing) {
  // All may still be connected when the last one comes.
  Start({.max_clients = 32});
  for (int i = 0; i < 20; ++i) {
    const OwnedDescriptor raw = Dial();
    const std::string request = absl::StrCat("{\"request\":\"snapshot\",\"id\":\"s", i, "\"}\n");
    // Half of them in the middle of a request.
    const size_t length = i % 2 == 0 ? request.size() : request.size() / 2;
    EXPECT_EQ(send(raw.number(), request.data(), length, MSG_NOSIGNAL),
              static_cast<ssize_t>(length));
  }
  const auto client = Connect();
  while (ValueOf(client->ListSnapshots()).size() < 10) std::this_thread::yield();
  EXPECT_EQ(ValueOf(client->ListSnapshots()).size(), 10u);
}

TEST_F(ControlTest, ConnectionsAreLimitedAndSilentOnesEnd) {
  Start({.max_clients = 2, .idle_seconds = 1});
  const OwnedDescriptor first = Dial();
  const OwnedDescriptor second = Dial();
  EXPECT_NE(Ask(second.number(), "{\"request\":\"status\"}\n"), "");  // both are admitted
  EXPECT_TRUE(absl::IsResourceExhausted(Connect()->Status().status()));
  char byte = 0;
  EXPECT_EQ(recv(first.number(), &byte, 1, 0), 0);   // silent for a second
  EXPECT_EQ(recv(second.number(), &byte, 1, 0), 0);  // since its request
  EXPECT_OK(Connect()->Status());
}

TEST_F(ControlTest, SocketIsItsOwnAndOnlyItsOwn) {
  Start({.mode = 0640});
  struct stat stat;
  ASSERT_EQ(::stat(socket().c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 07777, 0640u);
  EXPECT_TRUE(absl::IsAlreadyExists(ControlServer::Start(*volume_, {.path = socket()}).status()));
  server_.reset();
  EXPECT_NE(::stat(socket().c_str(), &stat), 0);
  EXPECT_TRUE(absl::IsNotFound(ControlClient::Connect(socket()).status()));

  directory_.Write("s", "a file");
  EXPECT_TRUE(absl::IsAlreadyExists(ControlServer::Start(*volume_, {.path = socket()}).status()));
  unlink(socket().c_str());
  // As a killed process leaves it.
  const OwnedDescriptor stale(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = ValueOf(SocketAddress(socket()));
  ASSERT_EQ(bind(stale.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_TRUE(absl::IsUnavailable(ControlClient::Connect(socket()).status()));
  Start();
  EXPECT_OK(Connect()->Status());
  EXPECT_TRUE(absl::IsInvalidArgument(
      ControlServer::Start(*volume_, {.path = std::string(108, 'a')}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ControlClient::Connect("").status()));
}

}  // namespace control_test
}  // namespace cbt::volume
