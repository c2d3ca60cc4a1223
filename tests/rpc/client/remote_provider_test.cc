// Fronts another server: the provider that forwards requests, and the end of relayed streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/fault_proxy.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/list_all.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace remote_provider_test {

using absl::StatusCode;
using reference::Ranges;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

// --- the provider --------------------------------------------------------------------------------

absl::StatusOr<MetadataSource> Open(SnapshotProvider& provider, const Secrets& secrets,
                                    std::optional<milliseconds> time = {}) {
  StreamContext context{.stop = {}, .secrets = secrets};
  if (time.has_value()) context.deadline = std::chrono::system_clock::now() + *time;
  return provider.OpenAllocated("s", context);
}

TEST(RemoteProvider, AsksForWhatItIsAskedFor) {
  Service service([](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    if (call.context.secrets.Get("key") != "value") return absl::UnauthenticatedError("no key");
    if (call.target != "s") return absl::NotFoundError("no such snapshot");
    return Extents(CursorOver(call.base == "b" ? Ranges{{0, 1}} : Ranges{{0, 4096}}, 8192));
  });
  const auto provider = rpc::MakeRemoteProvider(service.server->address(), rpc::Api::kCsi);
  Secrets secrets;
  EXPECT_EQ(Open(*provider, secrets).status().code(), StatusCode::kUnauthenticated);
  secrets.Set("key", "value");
  const auto allocated = Open(*provider, secrets);
  ASSERT_OK(allocated);
  EXPECT_EQ(ValueOf(Drain(*allocated->cursor)), (Ranges{{0, 4096}}));
  const StreamContext context{.stop = {}, .secrets = secrets};
  const auto delta = provider->OpenDelta("b", "s", context);
  ASSERT_OK(delta);
  EXPECT_EQ(ValueOf(Drain(*delta->cursor)), (Ranges{{0, 1}}));
  EXPECT_EQ(provider->OpenDelta("b", "other", context).status().code(), StatusCode::kNotFound);
}

TEST(RemoteProvider, AnAddressThatCantBeOneIsTheErrorOfEachAnswer) {
  const auto provider = rpc::MakeRemoteProvider("nowhere", rpc::Api::kCsi);
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = Open(*provider, Secrets()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    // The client must not learn the plugin's address.
    EXPECT_THAT(status.ToString(), Not(HasSubstr("nowhere")));
  }
  const auto empty = rpc::MakeRemoteProvider("unix:///none/socket", rpc::Api::kCsi);
  EXPECT_EQ(Open(*empty, Secrets()).status().code(), StatusCode::kUnavailable);
}

TEST(RemoteProvider, KeepsToTheTimeThatIsLeft) {
  const FakeServer server(Script{.hang = true});
  const auto provider = rpc::MakeRemoteProvider(server.address(), rpc::Api::kCsi);
  const Stopwatch watch;
  for (const milliseconds left : {milliseconds(-60'000), milliseconds(0), milliseconds(100)}) {
    EXPECT_EQ(Open(*provider, Secrets(), left).status().code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_LT(watch.elapsed(), seconds(10));
}

// A connection may take longer than the first retry delay, as over a slow line with TLS.
TEST(RemoteProvider, WaitsForAServerThatIsSlowToShakeHands) {
  const FakeServer server(Script{.messages = {Variable(100, {{8, 4}})}});
  FaultProxy wire(server.address());
  wire.Arm(WireFault{.kind = WireFault::Kind::kSilence, .after = 0});
  const auto provider = rpc::MakeRemoteProvider(wire.address(), rpc::Api::kCsi);
  const std::jthread late([&wire] {
    std::this_thread::sleep_for(milliseconds(1500));
    wire.Release();
  });
  const auto opened = Open(*provider, Secrets());
  ASSERT_OK(opened);
  EXPECT_EQ(ValueOf(Drain(*opened->cursor)), (Ranges{{8, 4}}));
  EXPECT_EQ(wire.fired(), 1);
}

// The answer's type decides how it is split again. Without a block the block size would be a guess.
TEST(RemoteProvider, BlocksAreToldAsBlocksWhereTheirSizeIsKnown) {
  const auto source = [](const std::string& message) {
    const FakeServer server(Script{.messages = {message}});
    const auto provider = rpc::MakeRemoteProvider(server.address(), rpc::Api::kCsi);
    auto opened = Open(*provider, Secrets());
    EXPECT_OK(opened);
    return std::pair(opened->type, opened->block_size);
  };
  EXPECT_EQ(source(Fixed(100, {{8, 4}})), std::pair(BlockMetadataType::kFixedLength, uint64_t{4}));
  EXPECT_EQ(source(Fixed(100, {{9, 4}})).first, BlockMetadataType::kVariableLength);
  EXPECT_EQ(source(Fixed(100, {})).first, BlockMetadataType::kVariableLength);
  EXPECT_EQ(source(Variable(100, {{8, 4}})).first, BlockMetadataType::kVariableLength);
}

// --- the relay -----------------------------------------------------------------------------------

class Relayed {
 public:
  explicit Relayed(const std::string& plugin) {
    rpc::RelayOptions options;
    options.listen = "unix://" + (dir_ / "relay");
    options.plugin = plugin;
    options.service.apis = {rpc::Api::kCsi};
    relay_ = ValueOf(rpc::Relay::Start(options));
  }

  rpc::ListRequest Request() const {
    rpc::ListRequest request;
    request.address = relay_->address();
    request.snapshot_id = std::string("s");
    request.timeout = seconds(60);
    request.retry_for = {};
    return request;
  }

 private:
  const TempDir dir_;
  std::unique_ptr<rpc::Relay> relay_;
};

TEST(RelayEnds, APluginThatCancelsIsOneThatMayComeBack) {
  for (const bool late : {false, true}) {
    const FakeServer plugin(Script{
        .messages = late ? std::vector{Variable(100, {{0, 10}})} : std::vector<std::string>(),
        .status = {grpc::StatusCode::CANCELLED, "shutting down"}});
    const Relayed relay(plugin.address());
    const absl::Status status = ListAll(relay.Request()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.ToString(), HasSubstr("plugin: it or the snapshot is not ready"));
  }
}

TEST(RelayOptions, ThatMakeNoSenseAreRefusedByName) {
  const TempDir dir;
  rpc::RelayOptions good;
  good.listen = "unix://" + (dir / "relay");
  good.plugin = "unix:///none/socket";
  good.service.apis = {rpc::Api::kCsi};
  EXPECT_OK(rpc::Relay::Start(good));
  const auto refused = [&good](auto change) {
    rpc::RelayOptions options = good;
    change(options);
    const absl::Status status = rpc::Relay::Start(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return status.ToString();
  };
  EXPECT_THAT(refused([](rpc::RelayOptions& options) { options.plugin = "nowhere"; }),
              HasSubstr("plugin: address: 'nowhere'"));
  EXPECT_THAT(refused([](rpc::RelayOptions& options) { options.service.stream.threads = 0; }),
              HasSubstr("threads"));
  EXPECT_THAT(refused([](rpc::RelayOptions& options) {
                options.connection.keepalive_time = milliseconds(0);
              }),
              HasSubstr("keepalive_time"));
  EXPECT_THAT(
      refused([](rpc::RelayOptions& options) { options.service.apis = std::vector<rpc::Api>(); }),
      HasSubstr("apis"));
  EXPECT_THAT(refused([](rpc::RelayOptions& options) { options.listen = "here"; }),
              HasSubstr("'here'"));
  EXPECT_THAT(
      refused([](rpc::RelayOptions& options) { options.plugin_stall_timeout = milliseconds(-1); }),
      HasSubstr("plugin_stall_timeout"));
}

}  // namespace remote_provider_test
}  // namespace cbt::test
