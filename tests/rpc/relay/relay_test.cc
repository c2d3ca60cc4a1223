// The relay between good and bad plugins, and good and bad clients.
#include "cbt/rpc/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/rpc/server.h"
#include "cbt/units.h"
#include "net/address.h"
#include "rpc/client/connect.h"
#include "rpc/relay/relay_feed.h"
#include "tests/rpc/support/descriptors.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/planted_server.h"
#include "tests/rpc/support/raw_call.h"
#include "tests/rpc/support/sidecar.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace relay_test {

using absl::StatusCode;
using reference::Ranges;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

// --- good plugins --------------------------------------------------------------------------------

RC_GTEST_PROP(Relay, PassesOnWhatThePluginSays, ()) {
  std::mt19937_64 random = AnyRandom();
  const Truth truth = AnyTruth(random);
  const Service plugin = Service::Of(truth);
  for (const bool check : {true, false}) {
    const Sidecar sidecar(plugin.server->address(), check);
    for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession}) {
      rpc::ListRequest request = sidecar.Request(api, random() % 2 == 0);
      request.max_results = static_cast<int32_t>(random() % 5);
      const Listed listed = ListWhatComes(request);
      if (!listed.status.ok()) RC_FAIL(listed.status.ToString());
      RC_ASSERT(listed.tuples == truth.full);
      if (check) RC_ASSERT(listed.completeness == rpc::Completeness::kProven);
      request.starting_offset = random() % (truth.capacity + 1);
      const Listed rest = ListWhatComes(request);
      if (!rest.status.ok()) RC_FAIL(rest.status.ToString());
      request.address = plugin.server->address();
      request.api = rpc::Api::kCsi;
      RC_ASSERT(rest.tuples == ListWhatComes(request).tuples);
    }
    rpc::ListRequest request = sidecar.Request(rpc::Api::kPaged, true);
    request.max_results = 7;
    const Listed listed = ListWhatComes(request);
    if (!listed.status.ok()) RC_FAIL(listed.status.ToString());
    // Pages do not reveal that the last block may reach past the capacity.
    RC_ASSERT(listed.tuples == truth.Cut());
  }
}

TEST(Relay, UncheckedStreamsCarryThePluginsOwnProof) {
  const Service plugin = Service::OfExtents({{0, 4096}, {8192, 4096}}, kMiB);
  const Sidecar sidecar(plugin.server->address(), false);
  const Listed listed = ListWhatComes(sidecar.Request(rpc::Api::kKubernetes));
  ASSERT_OK(listed.status);
  EXPECT_EQ(listed.completeness, rpc::Completeness::kProven);
}

// A plugin that ignores starting offsets and max_results.
TEST(Relay, PutsRightWhatThePluginIgnores) {
  Ranges all;
  for (uint64_t i = 0; i < 100; ++i) all.emplace_back(i * 10, 5);
  const FakeServer plugin(Script{.messages = {Variable(1000, {all.begin(), all.begin() + 40}),
                                              Variable(1000, {all.begin() + 40, all.end()})}});
  for (const bool check : {true, false}) {
    const Sidecar sidecar(plugin.address(), check);
    for (const uint64_t offset :
         {0u, 1u, 4u, 5u, 9u, 10u, 399u, 400u, 404u, 405u, 990u, 995u, 1000u}) {
      for (const int max : {0, 1, 3, 39, 40, 41, 100}) {
        rpc::ListRequest request = sidecar.Request(rpc::Api::kKubernetes);
        request.starting_offset = offset;
        request.max_results = max;
        const Listed listed = ListWhatComes(request);
        ASSERT_OK(listed.status) << listed.status << " at " << offset << " max " << max;
        Ranges expected;
        for (const auto& [at, length] : all) {
          if (at + length > offset) expected.emplace_back(at, length);
        }
        EXPECT_EQ(listed.tuples, expected) << offset << " max " << max;
      }
    }
  }
}

TEST(Relay, MessagesThatAreTooLargeAreCut) {
  Ranges all;
  for (uint64_t i = 0; i < 120'000; ++i) all.emplace_back(kPiB + i * 8192, 4096);
  const std::string message = Variable(uint64_t{1} << 51, all);
  ASSERT_GT(message.size(), rpc::kMaxMessageBytes);
  const FakeServer plugin(Script{.messages = {message}});
  const Sidecar sidecar(plugin.address(), false);
  const auto channel = Connect(sidecar.relay->address());
  csi::v1::GetMetadataAllocatedRequest request;
  request.set_snapshot_id("ns/b");
  RawCall call(channel, kAllocatedPath, request.SerializeAsString());
  const Answer answer = ReadAll(call);
  ASSERT_OK(answer.status);
  for (const size_t bytes : answer.message_bytes) EXPECT_LE(bytes, rpc::kMaxMessageBytes);
  EXPECT_EQ(answer.Tuples(), all);
}

// --- bad plugins ---------------------------------------------------------------------------------

TEST(Relay, E15NothingThatBreaksTheRulesIsPassedOnAsGood) {
  const std::string good = Variable(1000, {{0, 10}, {20, 10}});
  const std::pair<const char*, Script> cases[] = {
      {"starts before the end", {.messages = {good, Variable(1000, {{25, 10}})}}},
      {"starts before the end", {.messages = {good, Variable(1000, {{0, 10}})}}},
      {"is empty", {.messages = {good, Variable(1000, {{40, 0}})}}},
      {"past the capacity", {.messages = {good, Variable(1000, {{990, 11}})}}},
      {"past the capacity", {.messages = {good, Variable(1000, {{1000, 1}})}}},
      {"capacity", {.messages = {good, Variable(1001, {{40, 1}})}}},
      {"FIXED_LENGTH", {.messages = {good, Fixed(1000, {{40, 10}})}}},
      {"FIXED_LENGTH", {.messages = {Fixed(1000, {{0, 10}, {10, 11}})}}},
      {"byte", {.messages = {good, good.substr(0, good.size() - 1)}}},
      {"byte", {.messages = {good, "\xff\xff\xff\xff garbage"}}},
      {"", {.messages = {Message(csi::v1::UNKNOWN, 1000, {{0, 10}})}}},
  };
  for (const auto& [text, script] : cases) {
    const FakeServer plugin(script);
    const Sidecar sidecar(plugin.address());
    for (const rpc::Api api : {rpc::Api::kKubernetes, rpc::Api::kSession}) {
      const Listed listed = ListWhatComes(sidecar.Request(api));
      EXPECT_EQ(listed.status.code(), StatusCode::kInternal) << text << ": " << listed.status;
      EXPECT_THAT(listed.status.ToString(), HasSubstr(text));
    }
  }
}

TEST(Relay, ErrorsOfThePluginPassWithTheirCode) {
  for (const auto code : {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::NOT_FOUND,
                          grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::OUT_OF_RANGE,
                          grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::UNIMPLEMENTED,
                          grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::INTERNAL}) {
    for (const bool late : {false, true}) {
      Script script{.messages = {}, .status = {code, "as it is"}};
      if (late) script.messages.push_back(Variable(1000, {{0, 10}}));
      const FakeServer plugin(script);
      const Sidecar sidecar(plugin.address());
      const Listed listed = ListWhatComes(sidecar.Request(rpc::Api::kKubernetes));
      EXPECT_EQ(static_cast<int>(listed.status.code()), static_cast<int>(code));
      EXPECT_THAT(listed.status.ToString(), HasSubstr("plugin: "));
    }
  }
}

TEST(Relay, APluginThatIsNotThereIsUnavailableAndComesBack) {
  const TempDir dir;
  const std::string address = "unix://" + (dir / "plugin");
  const Sidecar sidecar(address);
  const rpc::ListRequest request = sidecar.Request(rpc::Api::kKubernetes);
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kUnavailable);
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({{0, 1}}, 4096));
  });
  rpc::ServerOptions options;
  options.listen = address;
  const auto plugin = rpc::Server::Start(provider, options);
  ASSERT_OK(plugin);
  EXPECT_TRUE(Eventually([&] { return ListWhatComes(request).status.ok(); }));
}

TEST(Relay, APluginThatDiesInMidStreamIsAnError) {
  const auto trace = std::make_shared<CursorTrace>();
  auto plugin = std::make_unique<Service>(
      [&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        return Extents(AlternatingCursor(uint64_t{1} << 45, 4096, trace));
      });
  const Sidecar sidecar(plugin->server->address());
  auto cursor = rpc::RemoteCursor::Open(sidecar.Request(rpc::Api::kKubernetes));
  ASSERT_OK(cursor);
  ExtentBatch batch;
  for (int i = 0; i < 100; ++i) ASSERT_OK((*cursor)->Next(batch));
  std::thread end([&] { plugin->server->Shutdown(milliseconds(0)); });
  absl::Status status;
  while (status.ok()) status = (*cursor)->Next(batch).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  end.join();
}

// --- clients -------------------------------------------------------------------------------------

TEST(Relay, E13WhenTheClientGoesThePluginIsLetGo) {
  const auto trace = std::make_shared<CursorTrace>();
  const Service plugin([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(kPiB, 4096, trace));
  });
  const Sidecar sidecar(plugin.server->address());
  {
    auto cursor = rpc::RemoteCursor::Open(sidecar.Request(rpc::Api::kKubernetes));
    ASSERT_OK(cursor);
    EXPECT_EQ(trace->alive, 1);
  }
  EXPECT_TRUE(Eventually([&] { return trace->alive == 0; }));
  EXPECT_TRUE(Eventually([&] { return sidecar.relay->open_streams() == 0; }));
}

TEST(Relay, E13AClientThatStopsReadingStopsThePlugin) {
  const auto trace = std::make_shared<CursorTrace>();
  const Service plugin([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(kPiB, 4096, trace));
  });
  const Sidecar sidecar(plugin.server->address());
  const auto channel = Connect(sidecar.relay->address());
  csi::v1::GetMetadataAllocatedRequest request;
  request.set_snapshot_id("ns/b");
  RawCall call(channel, kAllocatedPath, request.SerializeAsString());
  ASSERT_TRUE(call.Read().has_value());
  int before = -1;
  EXPECT_TRUE(Eventually([&] {
    const int now = trace->next_calls;
    const bool still = now == before;
    before = now;
    std::this_thread::sleep_for(milliseconds(200));
    return still;
  }));
  // And it continues where it was.
  uint64_t last = 0;
  for (int i = 0; i < 50; ++i) {
    const std::optional<std::string> bytes = call.Read();
    ASSERT_TRUE(bytes.has_value());
    Response message;
    ASSERT_TRUE(message.ParseFromString(*bytes));
    for (const auto& tuple : message.block_metadata()) {
      const auto offset = static_cast<uint64_t>(tuple.byte_offset());
      ASSERT_TRUE(last == 0 || offset == last + 8192);
      last = offset;
    }
  }
}

TEST(Relay, DeadlinesReachThePlugin) {
  std::optional<std::chrono::system_clock::time_point> seen;
  const Service plugin([&](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    seen = call.context.deadline;
    return Extents(CursorOver({}, 4096));
  });
  const Sidecar sidecar(plugin.server->address());
  rpc::ListRequest request = sidecar.Request(rpc::Api::kKubernetes);
  request.timeout = seconds(30);
  ASSERT_OK(ListWhatComes(request).status);
  ASSERT_TRUE(seen.has_value());
  EXPECT_LT(*seen - std::chrono::system_clock::now(), seconds(31));
}

TEST(Relay, NoStreamLastsLongerThanTheTotalTime) {
  const Service plugin([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(uint64_t{1} << 55, 4096));
  });
  rpc::StreamOptions stream;
  stream.total_time = milliseconds(300);
  const Sidecar sidecar(plugin.server->address(), true, stream);
  rpc::ListRequest request = sidecar.Request(rpc::Api::kKubernetes);
  // It would go on where each stream ended.
  request.retry_for = milliseconds(0);
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kDeadlineExceeded);
}

TEST(Relay, ThePluginIsNotAskedForThoseWhoMayNot) {
  const Service plugin([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({}, 4096));
  });
  const Sidecar sidecar(plugin.server->address());
  rpc::ListRequest request = sidecar.Request(rpc::Api::kKubernetes);
  request.token = Secret("wrong");
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(plugin.provider.calls, 0);
}

TEST(Relay, ShutsDownUnderLoad) {
  const Service plugin([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(uint64_t{1} << 55, 4096));
  });
  for (int round = 0; round < 3; ++round) {
    Sidecar sidecar(plugin.server->address());
    std::vector<std::thread> clients;
    for (int i = 0; i < 8; ++i) {
      clients.emplace_back([&sidecar, i] {
        const Listed listed =
            ListWhatComes(sidecar.Request(i % 2 == 0 ? rpc::Api::kKubernetes : rpc::Api::kSession));
        EXPECT_FALSE(listed.status.ok());
      });
    }
    EXPECT_TRUE(Eventually([&] { return sidecar.relay->open_streams() == 8; }));
    const Stopwatch watch;
    sidecar.relay->Shutdown(milliseconds(50));
    EXPECT_LT(watch.elapsed(), seconds(5));
    for (std::thread& client : clients) client.join();
  }
}

// Accepts everything; at the end it blocks the delivering thread.
class StoppingSink final : public rpc::MessageSink {
 public:
  Want Check() override { return Want::kMore; }
  Want Offer(rpc::OutMessage) override { return Want::kMore; }
  void Announce(rpc::Metadata) override {}
  void Complete(absl::Status, rpc::Metadata, std::optional<rpc::OutMessage>) override {
    ended.set_value();
    go_on.get_future().wait();
  }

  std::promise<void> ended;
  std::promise<void> go_on;
};

// A relay's parts without the server.
struct Upstream {
  explicit Upstream(const std::string& plugin)
      : channel(test::ValueOf(rpc::ConnectForGood(*net::ParseAddress(plugin), {}))),
        plan{.upstream = rpc::kCsiContract,
             .message_bytes = 4096,
             .pool = rpc::SlicePool::Create(4096, 4096),
             .calls = *calls} {}

  // Opens a stream; the feed keeps itself alive.
  std::weak_ptr<rpc::RelayFeed> Open(const std::shared_ptr<rpc::MessageSink>& sink) const {
    auto feed = std::make_shared<rpc::RelayFeed>(plan, *channel, rpc::kCsiContract,
                                                 rpc::AdmittedRequest{.target_snapshot_id = "b"},
                                                 sink, std::stop_token(), std::nullopt);
    std::weak_ptr<rpc::RelayFeed> left = feed;
    std::exchange(feed, nullptr)->Resume();
    return left;
  }

  std::unique_ptr<rpc::OpenCalls> calls = std::make_unique<rpc::OpenCalls>();
  std::shared_ptr<rpc::Channel> channel;
  const rpc::RelayPlan plan;
};

// A client's stream is over before the transport thread that ended it leaves the call. If the
// channel died with that call, the transport would wait for its own thread.
TEST(Relay, ThatEndsWaitsForItsCalls) {
  const FakeServer plugin(Script{.messages = {Variable(1000, {{0, 10}})}});
  Upstream upstream(plugin.address());
  const auto sink = std::make_shared<StoppingSink>();
  const std::weak_ptr<rpc::RelayFeed> left = upstream.Open(sink);
  sink->ended.get_future().wait();
  EXPECT_FALSE(left.expired());
  std::thread owner([&] {
    upstream.calls.reset();
    EXPECT_TRUE(left.expired());
  });
  std::this_thread::sleep_for(milliseconds(20));
  sink->go_on.set_value();
  owner.join();
}

// Fails when it is notified of the first message, or when it gets it.
class FullSink final : public rpc::MessageSink {
 public:
  explicit FullSink(bool at_once) : at_once_(at_once) {}
  Want Check() override { return Want::kMore; }
  Want Offer(rpc::OutMessage) override { throw std::bad_alloc(); }
  void Announce(rpc::Metadata) override {
    if (at_once_) throw std::bad_alloc();
  }
  void Complete(absl::Status status, rpc::Metadata, std::optional<rpc::OutMessage>) override {
    ended.set_value(std::move(status));
  }

  std::promise<absl::Status> ended;

 private:
  const bool at_once_;
};

// A transport cannot handle exceptions from its callbacks.
TEST(Relay, ThatRunsOutOfMemoryEndsTheStreamWithAnError) {
  const FakeServer plugin(Script{.messages = {Variable(1000, {{0, 10}}), Variable(1000, {})}});
  for (const bool at_once : {false, true}) {
    Upstream upstream(plugin.address());
    const auto sink = std::make_shared<FullSink>(at_once);
    const std::weak_ptr<rpc::RelayFeed> left = upstream.Open(sink);
    EXPECT_EQ(sink->ended.get_future().get().code(), StatusCode::kResourceExhausted);
    upstream.calls.reset();
    EXPECT_TRUE(left.expired());
  }
}

TEST(Relay, PagesMakeNoConnectionsOfTheirOwn) {
  const FakeServer plugin({.messages = {Variable(10, {{0, 1}})}});
  const Sidecar sidecar(plugin.address());
  const rpc::ListRequest page = sidecar.Request(rpc::Api::kPaged);
  ASSERT_OK(ListWhatComes(page).status);
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 300; ++i) {
    rpc::ListRequest request = page.Copy();
    request.timeout = milliseconds(i % 3);
    ListWhatComes(request).status.IgnoreError();
  }
  EXPECT_LE(DescriptorsComeDownTo(before), before);
  EXPECT_OK(ListWhatComes(page).status);
}

// This relay does not check, but it splits the messages and so sends a proof of its own. Where the
// plugin's proof contradicts the messages, that must still be an error.
TEST(Relay, AProofOfItsOwnNeverHidesThePlugins) {
  for (const char* const fault : {"wrong-proof", "proof-of-other-capacity", ""}) {
    const PlantedServer plugin(rpc::Api::kCsi, fault);
    const Sidecar sidecar(plugin.address(), false);
    rpc::ListRequest request = sidecar.Request(rpc::Api::kCsi);
    request.snapshot_id = "target";
    request.max_results = 1;
    const Listed listed = ListWhatComes(request);
    if (*fault == 0) {
      EXPECT_EQ(listed.completeness, rpc::Completeness::kProven) << listed.status;
    } else {
      EXPECT_EQ(listed.status.code(), StatusCode::kInternal) << fault << ": " << listed.status;
    }
  }
}

// The relay splits one large message of the plugin into many. The plugin has long ended with OK
// when the relay drains, but that OK does not cover what the client was sent.
TEST(Relay, E13DrainNeverEndsAStreamWithOkThatWasCutAnew) {
  Ranges all;
  for (uint64_t i = 0; i < 100'000; ++i) all.emplace_back(i * 10, 5);
  const std::string large = Variable(1'000'000, all);
  const FakeServer plugin([&](const FakeServer::Request& request) -> Script {
    if (request.snapshot_id() == "ns/small") return {.messages = {Variable(1000, {{0, 1}})}};
    return {.messages = {large}};
  });
  for (const size_t messages_in_flight : {1u, 2u, 64u}) {
    const Sidecar sidecar(plugin.address(), true, {.messages_in_flight = messages_in_flight});
    const auto channel = Connect(sidecar.relay->address());
    csi::v1::GetMetadataAllocatedRequest request;
    request.set_snapshot_id("ns/b");
    request.set_max_results(1);
    RawCall call(channel, kAllocatedPath, request.SerializeAsString());
    ASSERT_TRUE(call.Read().has_value());
    // Uses the same connection to the plugin, so the end of the first stream has arrived.
    rpc::ListRequest small = sidecar.Request(rpc::Api::kCsi);
    small.snapshot_id = std::string("ns/small");
    ASSERT_OK(ListWhatComes(small).status);
    auto drain = std::async(std::launch::async, [&] { sidecar.relay->Shutdown(milliseconds(0)); });
    EXPECT_TRUE(Eventually([&] { return !ListWhatComes(small).status.ok(); }));
    const Answer answer = ReadAll(call);
    EXPECT_FALSE(answer.status.ok())
        << "after " << answer.messages.size() + 1 << " messages of " << all.size();
    drain.get();
  }
}

// grpc.health.v1.HealthCheckResponse: field 1, SERVING 1, NOT_SERVING 2.
TEST(Relay, SaysThatItServesWhenItIsToldTo) {
  AccessParts parts(kToken);
  rpc::RelayOptions options;
  options.listen = "127.0.0.1:0";
  options.plugin = "unix:///nowhere";
  options.serving = false;
  parts.ApplyTo(options);
  const auto relay = ValueOf(rpc::Relay::Start(options));
  RawCall watch(Connect(relay->address()), "/grpc.health.v1.Health/Watch", "");
  EXPECT_EQ(watch.Read(), "\x08\x02");
  relay->SetServing(true);
  EXPECT_EQ(watch.Read(), "\x08\x01");
  relay->SetServing(false);
  EXPECT_EQ(watch.Read(), "\x08\x02");
  relay->SetServing(true);
  EXPECT_EQ(watch.Read(), "\x08\x01");
  // What drains does not come back.
  relay->Shutdown(milliseconds(0));
  relay->SetServing(true);
}

}  // namespace relay_test
}  // namespace cbt::test
