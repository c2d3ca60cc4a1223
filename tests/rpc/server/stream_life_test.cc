// The life cycle of streams: cancellation, deadlines, stalled readers, draining, limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "cbt/units.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace stream_life_test {

using grpc::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A volume without extents that never ends.
std::unique_ptr<ExtentCursor> QuietCursor(std::shared_ptr<CursorTrace> trace) {
  return std::make_unique<ScriptedCursor>(
      kTiB, 1, std::move(trace), [](uint64_t position, ExtentBatch&) -> absl::StatusOr<uint64_t> {
        std::this_thread::sleep_for(milliseconds(1));
        return position + 1;
      });
}

MetadataSource That(bool never_blocks, MetadataSource source) {
  source.never_blocks = never_blocks;
  return source;
}

// Messages are made by the executor, or also by the transport's threads.
class StreamLifeEitherWay : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(NeverBlocks, StreamLifeEitherWay, testing::Bool());

// Serves an endless quiet volume "quiet", one of endless tuples "dense", and small ones with one
// tuple.
struct ThreeVolumes {
  explicit ThreeVolumes(rpc::StreamOptions options = {}, bool dense_never_blocks = false)
      : service(
            [=, this](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
              if (call.target == "quiet") return Extents(QuietCursor(quiet));
              if (call.target == "dense") {
                return That(dense_never_blocks, Extents(AlternatingCursor(kTiB, 512, dense)));
              }
              return Extents(CursorOver({{0, 1}}, 10));
            },
            options) {}

  bool AllGone() const { return quiet->alive == 0 && dense->alive == 0; }
  size_t open() const { return service.server->open_streams(); }

  std::shared_ptr<CursorTrace> quiet = std::make_shared<CursorTrace>();
  std::shared_ptr<CursorTrace> dense = std::make_shared<CursorTrace>();
  Service service;
};

const Ask kQuiet = {.snapshot = "quiet"};
const Ask kDense = {.snapshot = "dense"};
const Ask kSmall = {.snapshot = "small"};

TEST(StreamLife, E13CancelInAQuietGap) {
  ThreeVolumes volumes;
  RawCall call(volumes.service.channel, kQuiet.path(), kQuiet.bytes());
  ASSERT_TRUE(Eventually([&] { return volumes.quiet->next_calls > 10; }));
  const int before = volumes.quiet->next_calls;
  call.Cancel();
  EXPECT_EQ(ReadAll(call).status.error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return volumes.AllGone() && volumes.open() == 0; }));
  // One millisecond each. Calls are counted, because on a busy machine the test itself takes long.
  EXPECT_LT(volumes.quiet->next_calls - before, 1000);
}

TEST_P(StreamLifeEitherWay, E13CancelAtTheFirstMessageAndLater) {
  ThreeVolumes volumes({}, GetParam());
  for (const int messages : {0, 1, 5}) {
    RawCall call(volumes.service.channel, kDense.path(), kDense.bytes());
    for (int i = 0; i < messages; ++i) ASSERT_TRUE(call.Read().has_value());
    call.Cancel();
    EXPECT_EQ(call.Finish().error_code(), StatusCode::CANCELLED);
    EXPECT_TRUE(Eventually([&] { return volumes.AllGone() && volumes.open() == 0; }));
  }
}

TEST(StreamLife, E13DeadlineEndsTheWork) {
  ThreeVolumes volumes;
  for (const Ask& ask : {kQuiet, kDense}) {
    const Answer answer = Get(volumes.service.channel, ask, milliseconds(150));
    EXPECT_EQ(answer.status.error_code(), StatusCode::DEADLINE_EXCEEDED);
    EXPECT_TRUE(Eventually([&] { return volumes.AllGone() && volumes.open() == 0; }));
  }
}

TEST_P(StreamLifeEitherWay, ManyCancelledStreamsLeaveNothing) {
  ThreeVolumes volumes({}, GetParam());
  for (int i = 0; i < 300; ++i) {
    RawCall call(volumes.service.channel, kDense.path(), kDense.bytes());
    if (i % 3 == 0) call.Read();
  }
  EXPECT_TRUE(Eventually([&] { return volumes.AllGone() && volumes.open() == 0; }));
}

TEST_P(StreamLifeEitherWay, OneClientIsKilledTheOtherGoesOn) {
  ThreeVolumes volumes({}, GetParam());
  RawCall stays(Connect(volumes.service.server->address()), kDense.path(), kDense.bytes());
  ASSERT_TRUE(stays.Read().has_value());
  {
    RawCall goes(Connect(volumes.service.server->address()), kDense.path(), kDense.bytes());
    ASSERT_TRUE(goes.Read().has_value());
  }
  EXPECT_TRUE(Eventually([&] { return volumes.open() == 1; }));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(stays.Read().has_value());
}

TEST(StreamLife, ProvidersLearnOfCancellationThroughTheToken) {
  std::atomic<bool> inside = false;
  std::atomic<bool> stopped = false;
  Service service([&](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    inside = true;
    while (!call.context.stop.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
    stopped = true;
    return absl::CancelledError("stopped");
  });
  RawCall call(service.channel, kAllocatedPath, Ask{}.bytes());
  ASSERT_TRUE(Eventually([&] { return inside.load(); }));
  call.Cancel();
  EXPECT_TRUE(Eventually([&] { return stopped.load(); }));
}

// A provider whose calls hang until the test ends them.
struct HangingProvider {
  explicit HangingProvider(rpc::StreamOptions options)
      : service(
            [this](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
              ++inside;
              released.wait();
              --inside;
              return Extents(CursorOver({{0, 1}}, 10));
            },
            options) {}
  ~HangingProvider() { Release(); }

  void Release() {
    if (!released.try_wait()) released.count_down();
  }

  std::atomic<int> inside = 0;
  std::latch released{1};
  Service service;
};

TEST(StreamLife, HangingProvidersDontKeepStreamsOpenButKeepTheirSlots) {
  HangingProvider hanging({.threads = 2, .max_streams = 1});
  RawCall call(hanging.service.channel, kAllocatedPath, Ask{}.bytes());
  ASSERT_TRUE(Eventually([&] { return hanging.inside == 1; }));
  call.Cancel();
  EXPECT_EQ(call.Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return hanging.service.server->open_streams() == 0; }));
  ASSERT_EQ(hanging.inside, 1);
  // Otherwise clients that come and go could pile up calls without limit.
  EXPECT_EQ(hanging.service.Get({}).status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  hanging.Release();
  EXPECT_TRUE(Eventually([&] { return hanging.service.Get({}).status.ok(); }));
}

TEST(StreamLife, ShutdownDoesNotWaitForAHangingProvider) {
  HangingProvider hanging({});
  RawCall call(hanging.service.channel, kAllocatedPath, Ask{}.bytes());
  ASSERT_TRUE(Eventually([&] { return hanging.inside == 1; }));
  const Stopwatch watch;
  hanging.service.server->Shutdown(milliseconds(50));
  EXPECT_LT(watch.elapsed(), seconds(3));
  EXPECT_EQ(hanging.inside, 1);
  EXPECT_EQ(ReadAll(call).status.error_code(), StatusCode::UNAVAILABLE);
}

// --- stalled readers ---------------------------------------------------------------------------

TEST_P(StreamLifeEitherWay, E13AStalledReaderCostsAFewMessagesAndNoThread) {
  ThreeVolumes volumes({.threads = 1}, GetParam());
  RawCall stalled(volumes.service.channel, kDense.path(), kDense.bytes());
  ASSERT_TRUE(stalled.Read().has_value());
  // The only thread serves other streams meanwhile, on other connections.
  const auto other = Connect(volumes.service.server->address());
  int before = 0;
  EXPECT_TRUE(Eventually([&] {
    before = volumes.dense->next_calls;
    EXPECT_OK(Get(other, kSmall).status);
    std::this_thread::sleep_for(milliseconds(100));
    return volumes.dense->next_calls == before;
  }));
  // A message holds about 25 batches; two are in flight, and some are in the transport's windows.
  EXPECT_LT(volumes.dense->next_calls, 500);
  // It continues where it stopped.
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(stalled.Read().has_value());
  EXPECT_GT(volumes.dense->next_calls, before);
}

// The amount that may be ready grows with what a client has taken, so an early stall holds little.
TEST_P(StreamLifeEitherWay, AReaderThatStallsEarlyHoldsLittleOfWhatMayBeReady) {
  constexpr size_t kMessage = 64 * kKiB;
  ThreeVolumes volumes(
      {.message_bytes = kMessage, .messages_in_flight = 1000, .bytes_in_flight = 100 * kMessage},
      GetParam());
  RawCall stalled(volumes.service.channel, kDense.path(), kDense.bytes());
  const std::optional<std::string> bytes = stalled.Read();
  csi::v1::GetMetadataAllocatedResponse message;
  ASSERT_TRUE(bytes.has_value() && message.ParseFromString(*bytes));
  const int calls_a_message =
      message.block_metadata_size() / int{ExtentBatch::kDefaultCapacity} + 1;
  int before = 0;
  EXPECT_TRUE(Eventually([&] {
    before = volumes.dense->next_calls;
    std::this_thread::sleep_for(milliseconds(100));
    return before == volumes.dense->next_calls;
  }));
  // This includes the content of the transport's windows.
  EXPECT_LT(volumes.dense->next_calls, 30 * calls_a_message);
}

// Any number of messages may be in flight; a stalled reader holds little more than the transport's
// window.
TEST_P(StreamLifeEitherWay, AReaderOfSmallMessagesStallsAndGoesOn) {
  const auto trace = std::make_shared<CursorTrace>();
  Service service(
      [&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        return That(GetParam(),
                    Extents(std::make_unique<ScriptedCursor>(
                        kTiB, 1, trace,
                        [](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
                          batch.push_back({position, 1});
                          return position + 2;
                        })));
      },
      {.messages_in_flight = 100'000});
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // keeps the initial window
  Ask ask;
  ask.max_results = 1;
  const auto channel = grpc::CreateCustomChannel(service.server->address(),
                                                 grpc::InsecureChannelCredentials(), arguments);
  RawCall stalled(channel, ask.path(), ask.bytes());
  const std::optional<std::string> first = stalled.Read();
  ASSERT_TRUE(first.has_value());
  int produced = 0;
  EXPECT_TRUE(Eventually([&] {
    produced = trace->next_calls;
    std::this_thread::sleep_for(milliseconds(300));
    return produced == trace->next_calls;
  }));
  // Each message has a prefix of five bytes.
  const int window = 65535 / static_cast<int>(first->size() + 5);
  EXPECT_LT(produced, 2 * window);
  // It continues where it stopped, also when it is read at full speed.
  for (int i = 0; i < 3 * window; ++i) ASSERT_TRUE(stalled.Read().has_value());
}

TEST(StreamLife, ManyStalledReadersHoldNoThread) {
  ThreeVolumes volumes({.threads = 2});
  std::vector<std::unique_ptr<RawCall>> stalled;
  for (int i = 0; i < 50; ++i) {
    stalled.push_back(std::make_unique<RawCall>(Connect(volumes.service.server->address()),
                                                kDense.path(), kDense.bytes()));
  }
  ASSERT_TRUE(Eventually([&] { return volumes.open() == 50; }));
  const Stopwatch watch;
  for (int i = 0; i < 20; ++i) EXPECT_OK(volumes.service.Get(kSmall).status);
  EXPECT_LT(watch.elapsed(), seconds(10));
}

TEST_P(StreamLifeEitherWay, E13StallTimeoutCancelsTheReaderAndNobodyElse) {
  ThreeVolumes volumes({.stall_timeout = milliseconds(200)}, GetParam());
  RawCall quiet(volumes.service.channel, kQuiet.path(), kQuiet.bytes());
  RawCall stalled(Connect(volumes.service.server->address()), kDense.path(), kDense.bytes());
  ASSERT_TRUE(stalled.Read().has_value());
  const Stopwatch watch;
  EXPECT_TRUE(Eventually([&] { return volumes.dense->alive == 0; }));
  EXPECT_LT(watch.elapsed(), seconds(3));
  const Answer rest = ReadAll(stalled);
  EXPECT_EQ(rest.status.error_code(), StatusCode::CANCELLED);
  // A quiet stream does not depend on any reader.
  EXPECT_EQ(volumes.quiet->alive, 1);
}

TEST_P(StreamLifeEitherWay, TheSourceDiesInTheExecutorNotOnTheTransportsThreads) {
  struct Ids {
    std::mutex mutex;
    std::thread::id opened;
    std::set<std::thread::id> next;
    std::set<std::thread::id> destroyed;
  } ids;
  struct Witness {
    explicit Witness(Ids& all) : ids(all) {}
    ~Witness() {
      std::lock_guard lock(ids.mutex);
      ids.destroyed.insert(std::this_thread::get_id());
    }
    Ids& ids;
  };
  const auto trace = std::make_shared<CursorTrace>();
  Service service(
      [&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        auto witness = std::make_shared<Witness>(ids);
        ids.opened = std::this_thread::get_id();
        return That(
            GetParam(),
            Extents(std::make_unique<ScriptedCursor>(
                kTiB, 512, trace,
                [&ids, witness](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
                  {
                    std::lock_guard lock(ids.mutex);
                    ids.next.insert(std::this_thread::get_id());
                  }
                  for (; !batch.full(); position += 1024) batch.push_back({position, 512});
                  return position;
                })));
      },
      {.threads = 1});
  // Cancelled while the stream waits for its reader and no task is running.
  RawCall call(service.channel, kAllocatedPath, Ask{}.bytes());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(call.Read().has_value());
  EXPECT_TRUE(Eventually([&] {
    const int before = trace->next_calls;
    std::this_thread::sleep_for(milliseconds(50));
    return trace->next_calls == before;
  }));
  call.Cancel();
  EXPECT_TRUE(Eventually([&] { return trace->alive == 0; }));
  std::lock_guard lock(ids.mutex);
  // The first batch comes from the executor's only thread, the others also from a loop.
  EXPECT_EQ(ids.next.size(), GetParam() ? 2u : 1u);
  EXPECT_EQ(ids.destroyed, std::set<std::thread::id>{ids.opened});
}

TEST_P(StreamLifeEitherWay, AQuietRegionIsSearchedInTheExecutor) {
  // After its first tuples, each step of the volume takes longer than a loop should be held up.
  std::mutex mutex;
  std::map<std::thread::id, int> quiet_steps;
  Service service(
      [&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        return That(GetParam(),
                    Extents(std::make_unique<ScriptedCursor>(
                        kTiB, 512, std::make_shared<CursorTrace>(),
                        [&](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
                          for (; position < 64 * kMiB && !batch.full(); position += 1024) {
                            batch.push_back({position, 512});
                          }
                          if (!batch.empty()) return position;
                          std::this_thread::sleep_for(milliseconds(1));
                          const std::lock_guard lock(mutex);
                          ++quiet_steps[std::this_thread::get_id()];
                          return position + 1024;
                        })));
      },
      {.message_bytes = 4096, .threads = 1});
  RawCall call(service.channel, kAllocatedPath, Ask{}.bytes());
  uint64_t tuples = 0;
  while (tuples < 64 * kMiB / 1024) {
    csi::v1::GetMetadataAllocatedResponse message;
    const std::optional<std::string> bytes = call.Read();
    ASSERT_TRUE(bytes.has_value() && message.ParseFromString(*bytes));
    tuples += static_cast<uint64_t>(message.block_metadata_size());
  }
  EXPECT_TRUE(Eventually([&] {
    const std::lock_guard lock(mutex);
    int most = 0;
    for (const auto& [thread, steps] : quiet_steps) most = std::max(most, steps);
    return most > 50;
  }));
  const std::lock_guard lock(mutex);
  int least = 1000;
  for (const auto& [thread, steps] : quiet_steps) least = std::min(least, steps);
  // A loop takes one step at most before it hands over.
  EXPECT_TRUE(quiet_steps.size() == 1 || least <= 2) << least;
  EXPECT_LE(quiet_steps.size(), 2u);
}

TEST(StreamLife, StreamsShareTheThreads) {
  ThreeVolumes volumes({.threads = 1});
  RawCall quiet(volumes.service.channel, kQuiet.path(), kQuiet.bytes());
  ASSERT_TRUE(Eventually([&] { return volumes.quiet->next_calls > 0; }));
  const Stopwatch watch;
  for (int i = 0; i < 5; ++i) EXPECT_OK(volumes.service.Get(kSmall).status);
  EXPECT_LT(watch.elapsed(), seconds(5));
}

TEST_P(StreamLifeEitherWay, OneMessageInFlightIsEnoughToComeToTheEnd) {
  for (const size_t messages_in_flight : {1u, 2u, 8u}) {
    Service service(
        [](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          return That(GetParam(), Extents(AlternatingCursor(64 * kMiB, 512)));
        },
        {.message_bytes = 4096, .messages_in_flight = messages_in_flight});
    const Answer answer = service.Get({});
    EXPECT_OK(answer.status);
    EXPECT_EQ(answer.Tuples().size(), size_t{65536});
  }
}

// --- limits ------------------------------------------------------------------------------------

TEST(StreamLife, MaxStreams) {
  ThreeVolumes volumes({.max_streams = 2});
  std::optional<RawCall> first;
  first.emplace(volumes.service.channel, kQuiet.path(), kQuiet.bytes());
  RawCall second(volumes.service.channel, kQuiet.path(), kQuiet.bytes());
  ASSERT_TRUE(Eventually([&] { return volumes.open() == 2; }));
  EXPECT_EQ(volumes.service.Get(kSmall).status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  first.reset();
  EXPECT_TRUE(Eventually([&] { return volumes.service.Get(kSmall).status.ok(); }));
}

// --- draining ----------------------------------------------------------------------------------

TEST(StreamLife, DrainEndsStreamsWithUnavailable) {
  ThreeVolumes volumes;
  RawCall quiet(volumes.service.channel, kQuiet.path(), kQuiet.bytes());
  RawCall dense(Connect(volumes.service.server->address()), kDense.path(), kDense.bytes());
  ASSERT_TRUE(dense.Read().has_value());
  auto rest = std::async(std::launch::async, [&] { return ReadAll(dense); });
  ASSERT_TRUE(Eventually([&] { return volumes.open() == 2; }));
  const Stopwatch watch;
  volumes.service.server->Shutdown(milliseconds(200));
  EXPECT_GE(watch.elapsed(), milliseconds(200));
  EXPECT_LT(watch.elapsed(), seconds(4));
  EXPECT_EQ(volumes.open(), 0u);
  EXPECT_EQ(ReadAll(quiet).status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(rest.get().status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Eventually([&] { return volumes.AllGone(); }));
}

TEST(StreamLife, DrainIsBoundedForStalledReadersAndNeverOk) {
  ThreeVolumes volumes;
  RawCall stalled(volumes.service.channel, kDense.path(), kDense.bytes());
  ASSERT_TRUE(stalled.Read().has_value());
  std::this_thread::sleep_for(milliseconds(100));
  const Stopwatch watch;
  volumes.service.server->Shutdown(milliseconds(0));
  EXPECT_LT(watch.elapsed(), seconds(4));
  EXPECT_FALSE(ReadAll(stalled).status.ok());
}

// CANCELLED is for clients that have cancelled: others do not ask again.
TEST(StreamLife, FDADrainTellsAStalledReaderToAskElsewhere) {
  ThreeVolumes volumes;
  RawCall stalled(volumes.service.channel, kDense.path(), kDense.bytes());
  ASSERT_TRUE(stalled.Read().has_value());
  std::this_thread::sleep_for(milliseconds(100));
  volumes.service.server->Shutdown(milliseconds(0));
  EXPECT_EQ(ReadAll(stalled).status.error_code(), StatusCode::UNAVAILABLE);
}

TEST(StreamLife, DrainRefusesNewStreamsAndLetsOpenOnesFinish) {
  std::atomic<bool> finish = false;
  Service service([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(std::make_unique<ScriptedCursor>(
        1000, 1, std::make_shared<CursorTrace>(),
        [&](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          std::this_thread::sleep_for(milliseconds(1));
          if (!finish) return position;
          batch.push_back({999, 1});
          return 1000;
        }));
  });
  RawCall open(service.channel, kAllocatedPath, Ask{}.bytes());
  ASSERT_TRUE(Eventually([&] { return service.server->open_streams() == 1; }));
  auto shutdown =
      std::async(std::launch::async, [&] { service.server->Shutdown(std::chrono::minutes(1)); });
  EXPECT_TRUE(Eventually([&] {
    const Answer refused = Get(service.channel, {}, milliseconds(100));
    return refused.status.error_code() == StatusCode::UNAVAILABLE;
  }));
  finish = true;
  const Answer answer = ReadAll(open);
  EXPECT_OK(answer.status);
  EXPECT_EQ(answer.Tuples().size(), 1u);
  shutdown.get();
}

TEST(StreamLife, ASecondShutdownCutsTheGraceShort) {
  ThreeVolumes volumes;
  RawCall quiet(volumes.service.channel, kQuiet.path(), kQuiet.bytes());
  ASSERT_TRUE(Eventually([&] { return volumes.open() == 1; }));
  const Stopwatch watch;
  auto patient = std::async(std::launch::async,
                            [&] { volumes.service.server->Shutdown(std::chrono::minutes(5)); });
  std::this_thread::sleep_for(milliseconds(50));
  volumes.service.server->Shutdown(milliseconds(0));
  patient.get();
  EXPECT_LT(watch.elapsed(), seconds(4));
  volumes.service.server->Shutdown();  // and once more
}

TEST_P(StreamLifeEitherWay, E13DrainUnderLoadNeverEndsATruncatedStreamWithOk) {
  constexpr uint64_t kCapacity = 16 * kMiB;
  for (int round = 0; round < 10; ++round) {
    Service service(
        [](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          return That(GetParam(), Extents(AlternatingCursor(kCapacity, 512)));
        },
        {.message_bytes = 4096});
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 6; ++i) {
      answers.push_back(std::async(
          std::launch::async, [&service] { return Get(Connect(service.server->address()), {}); }));
    }
    std::this_thread::sleep_for(milliseconds(3 * round));
    const Stopwatch watch;
    service.server->Shutdown(milliseconds(0));
    EXPECT_LT(watch.elapsed(), seconds(4));
    for (auto& future : answers) {
      const Answer answer = future.get();
      if (answer.status.ok()) {
        EXPECT_EQ(answer.Tuples().size(), kCapacity / 1024);
      } else if (!answer.messages.empty()) {
        EXPECT_EQ(answer.status.error_code(), StatusCode::UNAVAILABLE);
      } else {
        // gRPC cancels calls that it has not handed over yet at shutdown.
        EXPECT_THAT(answer.status.error_code(),
                    testing::AnyOf(StatusCode::UNAVAILABLE, StatusCode::CANCELLED));
      }
    }
  }
}

}  // namespace stream_life_test
}  // namespace cbt::test
