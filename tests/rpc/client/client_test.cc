// The remote cursor against good servers, broken connections and lying servers.
#include "cbt/rpc/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/rpc/support/descriptors.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/list_all.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace client_test {

using absl::StatusCode;
using reference::Ranges;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const grpc::Status kBroken(grpc::StatusCode::UNAVAILABLE, "connection lost");

rpc::ListRequest RequestTo(const std::string& address) {
  rpc::ListRequest request;
  request.address = address;
  request.snapshot_id = "s";
  request.timeout = seconds(60);
  return request;
}

using test::ListAll;
absl::StatusOr<Ranges> ListAll(const FakeServer& server) {
  return ListAll(RequestTo(server.address()));
}

// --- good servers ------------------------------------------------------------------------------

RC_GTEST_PROP(Client, GivesWhatTheOracleSays, ()) {
  std::mt19937_64 random = AnyRandom();
  const Truth truth = AnyTruth(random);
  const bool wire = random() % 2 == 0;
  const Ranges full = wire ? truth.full : truth.Cut();
  const Service service = Service::Of(truth);

  rpc::ListRequest request = RequestTo(service.server->address());
  request.max_results = static_cast<int32_t>(random() % 2 == 0 ? 0 : random() % 20);
  request.wire_tuples = wire;
  auto cursor = rpc::RemoteCursor::Open(request);
  RC_ASSERT(cursor.ok());
  RC_ASSERT((*cursor)->capacity() == truth.capacity);
  RC_ASSERT((*cursor)->type() == (truth.block > 0 ? BlockMetadataType::kFixedLength
                                                  : BlockMetadataType::kVariableLength));
  auto tuples = Drain(**cursor, Between<size_t>(1, 2000));
  RC_ASSERT(tuples.ok());
  RC_ASSERT(*tuples == full);
  RC_ASSERT((*cursor)->covered() == truth.capacity);
  RC_ASSERT((*cursor)->resumes() == 0);

  // The same cursor from any offset, and a new one from there.
  for (int i = 0; i < 3; ++i) {
    const uint64_t offset = random() % (truth.capacity + 1);
    const uint64_t from = AlignDown(offset, (*cursor)->granularity());
    tuples = DrainFrom(**cursor, offset);
    RC_ASSERT(tuples.ok());
    RC_ASSERT(*tuples == (offset == truth.capacity ? Ranges() : reference::CutAt(full, from)));

    request.starting_offset = offset;
    tuples = ListAll(request);
    RC_ASSERT(tuples.ok());
    RC_ASSERT(reference::CutAt(*tuples, offset) ==
              (offset == truth.capacity ? Ranges() : reference::CutAt(full, offset)));
  }
}

TEST(Client, OnlyWireTuplesExtendPastTheCapacity) {
  constexpr uint64_t kCapacity = 2 * 4096 + 100;
  const Service service = Service::OfBlocks({{0, 1}, {8192, 100}}, kCapacity, 4096);
  for (const bool wire : {false, true}) {
    rpc::ListRequest request = RequestTo(service.server->address());
    request.wire_tuples = wire;
    uint64_t reported = 0;
    request.on_progress = [&](const rpc::StreamProgress& seen) { reported = seen.reported_bytes; };
    ASSERT_OK_AND_ASSIGN(const auto cursor, rpc::RemoteCursor::Open(request));
    const Ranges want = {{0, 4096}, {8192, wire ? 4096 : 100}};
    EXPECT_EQ(ValueOf(Drain(*cursor)), want);
    // The proof and the progress describe what was sent.
    EXPECT_EQ(cursor->completeness(), rpc::Completeness::kProven);
    EXPECT_EQ(reported, 8192u);
    EXPECT_EQ(ValueOf(DrainFrom(*cursor, 8200)), (Ranges{want.back()}));
  }
}

TEST(Client, SendsWhatItWasAsked) {
  std::string seen;
  Service service([&](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    seen = call.base.value_or("none") + ">" + call.target + " " +
           std::string(call.context.secrets.Get("user").value_or("-"));
    return Extents(CursorOver({}, 10));
  });
  rpc::ListRequest request = RequestTo(service.server->address());
  ASSERT_OK(ListAll(request));
  EXPECT_EQ(seen, "none>s -");
  request.base_snapshot_id = "b";
  request.secrets.Set("user", "root");
  ASSERT_OK(ListAll(request));
  EXPECT_EQ(seen, "b>s root");
}

TEST(Client, E6TakesLargeStreamsWithDefaultLimits) {
  Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(4 * kGiB, 4096));
  });
  const auto tuples = ListAll(RequestTo(service.server->address()));
  ASSERT_OK(tuples);
  EXPECT_EQ(tuples->size(), size_t{1} << 19);
}

TEST(Client, ErrorsOfTheServerPassWithTheirCode) {
  for (int code = 1; code <= 16; ++code) {
    const FakeServer server({.status = {static_cast<grpc::StatusCode>(code), "because"}});
    rpc::ListRequest request = RequestTo(server.address());
    if (static_cast<StatusCode>(code) == StatusCode::kUnavailable) request.retry_for = {};
    const auto cursor = rpc::RemoteCursor::Open(request);
    EXPECT_EQ(cursor.status().code(), static_cast<StatusCode>(code));
    EXPECT_EQ(std::string(cursor.status().message()), "because");
    EXPECT_EQ(server.calls(), 1);
  }
}

TEST(Client, ServersThatAreNotThereAreUnavailable) {
  const TempDir dir;
  const Stopwatch watch;
  const auto code = [](const std::string& address) {
    rpc::ListRequest request = RequestTo(address);
    request.retry_for = {};
    return ListAll(request).status().code();
  };
  EXPECT_EQ(code("unix://" + (dir / "s")), StatusCode::kUnavailable);
  EXPECT_EQ(code("127.0.0.1:1"), StatusCode::kUnavailable);
  EXPECT_EQ(ListAll(RequestTo("nonsense")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_LT(watch.elapsed(), seconds(5));
}

TEST(Client, TimeoutCoversTheWholeStream) {
  for (const Script& script :
       {Script{.hang = true}, Script{.messages = {Variable(10, {{0, 1}})}, .hang = true}}) {
    const FakeServer server(script);
    rpc::ListRequest request = RequestTo(server.address());
    request.timeout = milliseconds(150);
    const Stopwatch watch;
    EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_LT(watch.elapsed(), seconds(3));
  }
}

TEST(Client, AnOffsetPastAnyCapacityIsNotAskedFor) {
  const FakeServer server({.messages = {Variable(kMaxCapacity, {})}});
  rpc::ListRequest request = RequestTo(server.address());
  request.starting_offset = kMaxCapacity + 1;
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kOutOfRange);
  request.starting_offset = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(server.calls(), 0);
  request.starting_offset = kMaxCapacity;
  EXPECT_OK(ListAll(request));
}

TEST(Client, CanBeDroppedAtAnyTime) {
  const Stopwatch watch;
  {
    const FakeServer server({.messages = {Variable(10, {{0, 1}})}, .hang = true});
    auto cursor = rpc::RemoteCursor::Open(RequestTo(server.address()));
    ASSERT_OK(cursor);
    ExtentBatch batch;
    EXPECT_EQ(ValueOf((*cursor)->Next(batch)), Step::kMore);
    EXPECT_EQ(batch.size(), 1u);
    EXPECT_EQ((*cursor)->covered(), 1u);
  }
  EXPECT_LT(watch.elapsed(), seconds(3));
}

TEST(Client, GivingUpBeforeItIsConnectedLeavesNoConnectionBehind) {
  const FakeServer server({.messages = {Variable(10, {{0, 1}})}});
  ASSERT_OK(ListAll(server));
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 300; ++i) {
    rpc::ListRequest request = RequestTo(server.address());
    request.timeout = milliseconds(i % 2);
    ListAll(request).status().IgnoreError();
  }
  EXPECT_LE(DescriptorsComeDownTo(before), before);
}

// --- coverage ----------------------------------------------------------------------------------

TEST(Client, NothingIsCompleteBeforeTheServerSaysOk) {
  // The last tuple ends at the capacity; then the server continues, fails, or returns OK.
  const std::vector<std::string> messages = {Variable(10, {{0, 1}, {9, 1}})};
  EXPECT_EQ(ValueOf(ListAll(FakeServer({.messages = messages}))), (Ranges{{0, 1}, {9, 1}}));
  EXPECT_EQ(ListAll(FakeServer({.messages = messages, .status = {grpc::StatusCode::INTERNAL, "x"}}))
                .status()
                .code(),
            StatusCode::kInternal);
  EXPECT_EQ(ListAll(FakeServer({.messages = {messages[0], messages[0]}})).status().code(),
            StatusCode::kDataLoss);
}

TEST(Client, EmptyMessagesAreNotTheEnd) {
  const FakeServer server({.messages = {Variable(10, {}), Variable(10, {{2, 2}}), Variable(10, {}),
                                        Variable(10, {{5, 5}}), Variable(10, {})}});
  EXPECT_EQ(ValueOf(ListAll(server)), (Ranges{{2, 2}, {5, 5}}));
}

TEST(Client, TheLastBlockMayReachPastTheCapacity) {
  const FakeServer server({.messages = {Fixed(10, {{0, 4}}), Fixed(10, {{8, 4}})}});
  EXPECT_EQ(ValueOf(ListAll(server)), (Ranges{{0, 4}, {8, 2}}));
}

// --- lying servers -----------------------------------------------------------------------------

TEST(Client, LiesAreDataLoss) {
  const std::vector<std::vector<std::string>> lies = {
      {},                                                      // no message at all
      {Variable(100, {{50, 10}, {20, 10}})},                   // disordered
      {Variable(100, {{50, 10}}), Variable(100, {{20, 10}})},  // across messages
      {Variable(100, {{50, 10}, {55, 10}})},                   // overlap
      {Variable(100, {{50, 10}}), Variable(100, {{59, 10}})},  // across messages
      {Variable(100, {{50, 10}, {50, 10}})},                   // repeated
      {Variable(100, {{50, 0}})},                              // empty
      {Variable(100, {{95, 10}})},                             // past the capacity
      {Variable(100, {{100, 1}})},                             // outside
      {Fixed(100, {{100, 4}})},                                // outside
      {Fixed(100, {{0, 4}, {4, 5}})},                          // two block sizes
      {Fixed(100, {{0, 4}}), Fixed(100, {{4, 8}})},            // across messages
      {Variable(100, {{0, 1}}), Variable(101, {{1, 1}})},      // another capacity
      {Variable(100, {{0, 1}}), Fixed(100, {{1, 1}})},         // another type
      {Message(csi::v1::UNKNOWN, 100, {{0, 1}})},              // no type
      {Message(static_cast<csi::v1::BlockMetadataType>(7), 100, {{0, 1}})},
      {Variable(static_cast<uint64_t>(-1), {})},           // negative capacity
      {Variable(100, {{static_cast<uint64_t>(-5), 10}})},  // negative offset
      {Variable(100, {{5, static_cast<uint64_t>(-10)}})},  // negative size
      {std::string("\x1a\x7f", 2)},                        // truncated protobuf
      {Variable(100, {{0, 1}}), Variable(100, {{5, 1}}).substr(0, 5)},
      {Variable(100, {{0, 1}}), ""},  // no fields
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    const FakeServer server({.messages = lies[i]});
    const auto tuples = ListAll(server);
    EXPECT_EQ(tuples.status().code(), StatusCode::kDataLoss) << i << ": " << tuples.status();
    EXPECT_EQ(server.calls(), 1) << i;
  }
}

TEST(Client, TuplesThatWereNotAskedForAreDataLoss) {
  const FakeServer server({.messages = {Variable(100, {{0, 10}, {20, 10}})}});
  rpc::ListRequest request = RequestTo(server.address());
  request.starting_offset = 10;
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDataLoss);
  request.starting_offset = 9;
  EXPECT_OK(ListAll(request));
  request.starting_offset = 0;
  request.max_results = 1;
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDataLoss);
  request.max_results = 2;
  EXPECT_OK(ListAll(request));
}

TEST(Client, AFailedCursorStaysFailedUntilItIsSought) {
  std::atomic<bool> lie = true;
  const FakeServer server([&](const FakeServer::Request& request) -> Script {
    if (lie) return {.messages = {Variable(100, {{0, 1}}), Variable(100, {{0, 1}})}};
    return {.messages = {Variable(
                100, request.starting_offset() == 0 ? Ranges{{0, 1}, {50, 1}} : Ranges{{50, 1}})}};
  });
  auto cursor = rpc::RemoteCursor::Open(RequestTo(server.address()));
  ASSERT_OK(cursor);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Drain(**cursor).status().code(), StatusCode::kDataLoss);
  lie = false;
  EXPECT_EQ(ValueOf(DrainFrom(**cursor, 0)), (Ranges{{0, 1}, {50, 1}}));
  EXPECT_EQ(ValueOf(DrainFrom(**cursor, 20)), (Ranges{{50, 1}}));
}

// --- resuming ----------------------------------------------------------------------------------

// Serves `tuples`, two per message, starting with the first that ends past the starting offset.
// Breaks after each `messages` messages.
FakeServer::Answer Breaking(std::function<std::string(const Ranges&)> encode, Ranges tuples,
                            size_t messages) {
  return [=](const FakeServer::Request& request) {
    Script script;
    Ranges group;
    bool all = true;
    for (const auto& tuple : tuples) {
      if (tuple.first + tuple.second <= static_cast<uint64_t>(request.starting_offset())) continue;
      if (script.messages.size() == messages) {
        all = false;
        break;
      }
      group.push_back(tuple);
      if (group.size() == 2) script.messages.push_back(encode(std::exchange(group, {})));
    }
    if (all && (!group.empty() || script.messages.empty()))
      script.messages.push_back(encode(group));
    if (!all) script.status = kBroken;
    return script;
  };
}

TEST(Client, E13ResumesAfterEveryMessageWithoutRepeatingOrSkipping) {
  Ranges extents;
  Ranges blocks;
  for (uint64_t i = 0; i < 9; ++i) {
    extents.emplace_back(i * 100 + 7, 13);
    blocks.emplace_back(i * 100, 50);
  }
  for (const size_t messages : {1u, 2u, 3u}) {
    const FakeServer variable(
        Breaking([](const Ranges& t) { return Variable(1000, t); }, extents, messages));
    rpc::ListRequest request = RequestTo(variable.address());
    std::vector<uint64_t> offsets;
    request.on_resume = [&](uint64_t offset, const absl::Status& reason) {
      offsets.push_back(offset);
      EXPECT_EQ(reason.code(), StatusCode::kUnavailable);
    };
    auto cursor = rpc::RemoteCursor::Open(request);
    ASSERT_OK(cursor);
    EXPECT_EQ(ValueOf(Drain(**cursor)), extents);
    EXPECT_EQ(static_cast<size_t>((*cursor)->resumes()), offsets.size());
    EXPECT_EQ(offsets.size(), (5 + messages - 1) / messages - 1);
    EXPECT_EQ(offsets.front(), (messages * 2 - 1) * 100 + 20);

    const FakeServer fixed(
        Breaking([](const Ranges& t) { return Fixed(1000, t); }, blocks, messages));
    EXPECT_EQ(ValueOf(ListAll(fixed)), blocks);
  }
}

TEST(Client, ResumesAtTheVeryEnd) {
  // Only the final OK was lost.
  for (const bool says_something : {true, false}) {
    const FakeServer server([=](const FakeServer::Request& request) -> Script {
      if (request.starting_offset() == 0) {
        return {.messages = {Fixed(10, {{0, 4}, {8, 4}})}, .status = kBroken};
      }
      EXPECT_EQ(request.starting_offset(), 10);
      return {.messages = says_something ? std::vector{Fixed(10, {})} : std::vector<std::string>()};
    });
    EXPECT_EQ(ValueOf(ListAll(server)), (Ranges{{0, 4}, {8, 2}}));
  }
}

// The last block ends past the capacity, where the client resumes, so it may be sent again.
TEST(Client, TheLastBlockMayComeOnceMoreAtTheVeryEnd) {
  for (const Ranges& again : {Ranges{{8, 4}}, Ranges{{7, 4}}}) {
    std::atomic<int> opened = 0;
    const FakeServer server([&](const FakeServer::Request& request) -> Script {
      if (request.starting_offset() == 0) {
        return {.messages = {Fixed(10, {{0, 4}, {8, 4}})}, .status = kBroken};
      }
      EXPECT_EQ(request.starting_offset(), 10);
      // That stream may break, too.
      if (opened++ == 0) return {.messages = {Fixed(10, again)}, .status = kBroken};
      return {.messages = {Fixed(10, again)}};
    });
    const auto tuples = ListAll(server);
    if (again.front().first == 8) {
      ASSERT_OK(tuples);
      EXPECT_EQ(*tuples, (Ranges{{0, 4}, {8, 2}}));
    } else {
      // A different block is an error.
      EXPECT_EQ(tuples.status().code(), StatusCode::kDataLoss);
    }
  }
}

TEST(Client, NothingIsLeftAtTheVeryEndWhenItIsSoughtTo) {
  const FakeServer server(Script{.messages = {Fixed(10, {{8, 4}})}});
  auto cursor = rpc::RemoteCursor::Open(RequestTo(server.address()));
  ASSERT_OK(cursor);
  EXPECT_EQ(ValueOf(DrainFrom(**cursor, 10)), Ranges());
  EXPECT_EQ(ValueOf(DrainFrom(**cursor, 9)), (Ranges{{8, 2}}));
}

TEST(Client, TuplesThatReachBackOverTheResumePointAreCut) {
  const FakeServer server([=](const FakeServer::Request& request) -> Script {
    if (request.starting_offset() == 0) {
      return {.messages = {Variable(100, {{0, 10}})}, .status = kBroken};
    }
    return {.messages = {Variable(100, {{0, 30}, {50, 10}})}};
  });
  EXPECT_EQ(ValueOf(ListAll(server)), (Ranges{{0, 10}, {10, 20}, {50, 10}}));
}

// The first tuple may begin before the starting offset, even if the stream had to be reopened
// before it came: nothing was returned that it could repeat.
TEST(Client, TheFirstTupleOfAStreamThatBrokeBeforeItIsNotCut) {
  std::atomic<int> opened = 0;
  const FakeServer server([&](const FakeServer::Request& request) -> Script {
    EXPECT_EQ(request.starting_offset(), 10);
    if (opened++ == 0) return {.messages = {Variable(100, {})}, .status = kBroken};
    return {.messages = {Variable(100, {{5, 20}})}};
  });
  rpc::ListRequest request = RequestTo(server.address());
  request.starting_offset = 10;
  EXPECT_EQ(ValueOf(ListAll(request)), (Ranges{{5, 20}}));
  EXPECT_EQ(opened, 2);
}

// A block across the sought offset is cut there. A block that overlaps the end of another one is a
// lie, also after a Seek().
TEST(Client, BlocksThatReachBackOverASoughtOffsetAreCut) {
  std::atomic<bool> lie = false;
  const FakeServer server([&](const FakeServer::Request& request) -> Script {
    if (request.starting_offset() == 0) return {.messages = {Fixed(100, {{2, 4}, {6, 4}})}};
    if (request.starting_offset() == 8) {
      return {.messages = {Fixed(100, {{6, 4}})}, .status = kBroken};
    }
    EXPECT_EQ(request.starting_offset(), 10);
    return {.messages = {lie ? Fixed(100, {{8, 4}}) : Fixed(100, {{10, 4}})}};
  });
  auto cursor = rpc::RemoteCursor::Open(RequestTo(server.address()));
  ASSERT_OK(cursor);
  // Blocks of 4 bytes at offsets that are no multiples of 4 imply no granularity.
  EXPECT_EQ((*cursor)->granularity(), 1u);
  EXPECT_EQ(ValueOf(DrainFrom(**cursor, 8)), (Ranges{{8, 2}, {10, 4}}));
  lie = true;
  EXPECT_EQ(DrainFrom(**cursor, 8).status().code(), StatusCode::kDataLoss);
}

TEST(Client, TheGranularityIsWhatBlocksShow) {
  const auto granularity = [](const std::string& message) {
    const FakeServer server(Script{.messages = {message}});
    const auto cursor = rpc::RemoteCursor::Open(RequestTo(server.address()));
    EXPECT_OK(cursor);
    return cursor.ok() ? (*cursor)->granularity() : 0;
  };
  EXPECT_EQ(granularity(Fixed(100, {{8, 4}, {16, 4}})), 4u);
  EXPECT_EQ(granularity(Fixed(100, {{9, 4}})), 1u);
  EXPECT_EQ(granularity(Fixed(100, {})), 1u);
  EXPECT_EQ(granularity(Variable(100, {{8, 4}})), 1u);
  EXPECT_EQ(granularity(Fixed(kMaxCapacity, {{0, kMaxGranularity}})), kMaxGranularity);
  // Rounding to more than that could wrap around.
  EXPECT_EQ(granularity(Fixed(kMaxCapacity, {{0, kMaxGranularity + 1}})), 1u);
}

TEST(Client, ResumedStreamsThatAreOtherStreamsAreDataLoss) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> pairs = {
      {Variable(100, {{0, 10}}), {Variable(101, {{50, 10}})}},  // another capacity
      {Variable(100, {{0, 10}}), {Fixed(100, {{50, 10}})}},     // another type
      {Variable(100, {{0, 10}}), {Variable(100, {{0, 10}})}},   // repeats
      {Fixed(100, {{0, 10}}), {Fixed(100, {{5, 10}})}},         // moved its blocks
  };
  for (size_t i = 0; i < pairs.size(); ++i) {
    const FakeServer server([&](const FakeServer::Request& request) -> Script {
      if (request.starting_offset() == 0) {
        return {.messages = {pairs[i].first}, .status = kBroken};
      }
      return {.messages = pairs[i].second};
    });
    EXPECT_EQ(ListAll(server).status().code(), StatusCode::kDataLoss) << i;
    EXPECT_EQ(server.calls(), 2);
  }
}

TEST(Client, OnlyWhatMayPassIsResumed) {
  for (const auto code : {grpc::StatusCode::INTERNAL, grpc::StatusCode::ABORTED,
                          grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::DATA_LOSS}) {
    const FakeServer server({.messages = {Variable(10, {{0, 1}})}, .status = {code, "x"}});
    EXPECT_EQ(ListAll(server).status().code(), static_cast<StatusCode>(code));
    EXPECT_EQ(server.calls(), 1);
  }
}

TEST(Client, ServersThatShutDownMayCancelAStreamOrItsResumption) {
  for (const grpc::Status& first : {kBroken, grpc::Status::CANCELLED}) {
    std::atomic<int> cancelled = 0;
    const FakeServer server([&](const FakeServer::Request& request) -> Script {
      if (request.starting_offset() == 0) {
        return {.messages = {Variable(100, {{0, 10}})}, .status = first};
      }
      if (cancelled++ == 0) return {.status = grpc::Status::CANCELLED};
      return {.messages = {Variable(100, {{50, 10}})}};
    });
    EXPECT_EQ(ValueOf(ListAll(server)), (Ranges{{0, 10}, {50, 10}}));
    EXPECT_EQ(server.calls(), 3);
  }
}

TEST(Client, TimeoutEndsTheWaitsBetweenResumptions) {
  const FakeServer server([=](const FakeServer::Request& request) -> Script {
    if (request.starting_offset() == 0) {
      return {.messages = {Variable(100, {{0, 10}})}, .status = kBroken};
    }
    return {.status = kBroken};
  });
  rpc::ListRequest request = RequestTo(server.address());
  request.timeout = milliseconds(500);
  const Stopwatch watch;
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(watch.elapsed(), seconds(2));
}

TEST(Client, E13ResumesThroughAServerThatIsStoppedAndStartedAgain) {
  static constexpr uint64_t kCapacity = 4 * kMiB;
  const TempDir dir;
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.service.stream.message_bytes = 4096;
  for (const bool as_blocks : {false, true}) {
    // Slow enough to be interrupted several times.
    FunctionProvider provider([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
      auto cursor = std::make_unique<ScriptedCursor>(
          kCapacity, 512, std::make_shared<CursorTrace>(),
          [](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
            std::this_thread::sleep_for(milliseconds(2));
            uint64_t next = (position + 1023) / 1024 * 1024;
            for (int i = 0; i < 40 && next < kCapacity && !batch.full(); ++i, next += 1024) {
              batch.push_back({next, 512});
            }
            return next < kCapacity ? batch.back().end() : kCapacity;
          });
      return as_blocks ? Blocks(std::move(cursor), 512) : Extents(std::move(cursor));
    });
    auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    std::promise<void> opened;
    auto listing = std::async(std::launch::async, [&] {
      auto cursor = rpc::RemoteCursor::Open(RequestTo(options.listen));
      EXPECT_OK(cursor);
      opened.set_value();
      auto tuples = Drain(**cursor);
      EXPECT_OK(tuples);
      return std::pair((*cursor)->resumes(), *std::move(tuples));
    });
    // Only a stream that has begun can be resumed.
    opened.get_future().wait();
    for (int i = 0; i < 3; ++i) {
      std::this_thread::sleep_for(milliseconds(60));
      server->reset();
      server = rpc::Server::Start(provider, options);
      ASSERT_OK(server);
      std::this_thread::sleep_for(milliseconds(100));
    }
    const auto [resumes, tuples] = listing.get();
    EXPECT_GE(resumes, 1);
    ASSERT_EQ(tuples.size(), kCapacity / 1024);
    for (size_t i = 0; i < tuples.size(); ++i) {
      EXPECT_EQ(tuples[i], (std::pair<uint64_t, uint64_t>(i * 1024, 512)));
    }
  }
}

TEST(Client, E19SecretsAreInNoErrorText) {
  const FakeServer server({.messages = {Variable(10, {{9, 9}})}});
  rpc::ListRequest request = RequestTo(server.address());
  request.secrets.Set("key", "canary");
  EXPECT_THAT(ListAll(request).status().ToString(), Not(HasSubstr("canary")));
}

}  // namespace client_test
}  // namespace cbt::test
