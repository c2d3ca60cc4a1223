// Options of plugin authors and clients: shapes of answers, summaries, progress, proofs, fallbacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/list_all.h"
#include "tests/rpc/support/planted_server.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace options_test {

using absl::StatusCode;
using reference::Ranges;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

rpc::ListRequest RequestTo(const std::string& address) {
  rpc::ListRequest request;
  request.address = address;
  request.snapshot_id = std::string("s");
  request.timeout = seconds(60);
  request.retry_for = {};
  request.wire_tuples = true;
  return request;
}

// --- shapes --------------------------------------------------------------------------------------

RC_GTEST_PROP(Shapes, CoverWhatChangedAndCanBeResumedAnywhere, ()) {
  std::mt19937_64 random = AnyRandom();
  const size_t capacity = Between<size_t>(1, 3000);
  const size_t density = Between<size_t>(1, 40);
  const reference::ByteSet set = RunsAndGaps(random, capacity, density, 8);
  rpc::StreamOptions options;
  rpc::StreamShape& shape = options.shape;
  if (random() % 2 == 0) shape.alignment = 1 + random() % 70;
  if (random() % 2 == 0) shape.coalesce_gap = random() % 100;
  if (random() % 2 == 0) shape.max_extent = 1 + random() % 200;
  const bool forced = random() % 3 == 0;
  if (forced) {
    shape.type = BlockMetadataType::kFixedLength;
    shape.block_size = uint64_t{1} << Between(0, 8);
  }
  const Service service = Service::OfExtents(reference::RunsOf(set), capacity, 1, options);
  rpc::ListRequest request = RequestTo(service.server->address());
  const auto full = ListAll(request);
  if (!full.ok()) RC_FAIL(full.status().ToString());
  reference::ByteSet got(capacity);
  uint64_t last_end = 0;
  for (const auto& [offset, length] : *full) {
    if (forced) {
      RC_ASSERT(length == shape.block_size && offset % length == 0);
    } else {
      const uint64_t unit = std::max<uint64_t>(shape.alignment, 1);
      RC_ASSERT(offset % unit == 0);
      const bool whole = offset + length == capacity || (offset + length) % unit == 0;
      RC_ASSERT(whole);
      if (shape.max_extent != 0) RC_ASSERT(length <= std::max(shape.max_extent, unit));
      if (last_end != 0 && shape.max_extent == 0) {
        RC_ASSERT(offset - last_end > shape.coalesce_gap);
      }
    }
    last_end = offset + length;
    for (uint64_t i = offset; i < std::min<uint64_t>(offset + length, capacity); ++i) got[i] = true;
  }
  for (size_t i = 0; i < capacity; ++i) RC_ASSERT(!set[i] || got[i]);

  request.starting_offset = random() % (capacity + 1);
  const auto rest = ListAll(request);
  if (!rest.ok()) RC_FAIL(rest.status().ToString());
  reference::ByteSet again(capacity);
  for (const auto& [offset, length] : *rest) {
    for (uint64_t i = offset; i < std::min<uint64_t>(offset + length, capacity); ++i) {
      again[i] = true;
    }
  }
  for (size_t i = request.starting_offset; i < capacity; ++i) RC_ASSERT(again[i] == got[i]);
}

TEST(Shapes, AreCheckedWhenAServerStarts) {
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({}, 4096));
  });
  const TempDir dir;
  using Change = void (*)(rpc::ServerOptions&);
  const Change changes[] = {
      +[](rpc::ServerOptions& o) { o.service.stream.shape.alignment = uint64_t{1} << 63; },
      +[](rpc::ServerOptions& o) { o.service.stream.shape.type = BlockMetadataType::kUnknown; },
      +[](rpc::ServerOptions& o) { o.service.stream.bytes_in_flight = 0; },
      +[](rpc::ServerOptions& o) { o.service.stream.total_time = milliseconds(-1); },
      +[](rpc::ServerOptions& o) { o.connection.keepalive_time = milliseconds(0); },
      +[](rpc::ServerOptions& o) { o.connection.keepalive_timeout = milliseconds(0); },
      +[](rpc::ServerOptions& o) { o.connection.min_client_ping = milliseconds(-1); },
      +[](rpc::ServerOptions& o) { o.connection.idle_time = milliseconds(-1); },
      +[](rpc::ServerOptions& o) { o.service.apis = std::vector<rpc::Api>(); },
      +[](rpc::ServerOptions& o) {
        o.service.apis = {rpc::Api::kCsi, rpc::Api::kCsi};
      },
  };
  for (const Change change : changes) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    change(options);
    EXPECT_EQ(rpc::Server::Start(provider, options).status().code(), StatusCode::kInvalidArgument);
  }
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.connection.memory_quota = 64 * kMiB;
  options.connection.idle_time = seconds(60);
  const auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  EXPECT_OK(ListAll(RequestTo((*server)->address())));
}

TEST(Streams, LastNoLongerThanTheTotalTime) {
  rpc::StreamOptions options;
  options.total_time = milliseconds(200);
  const Service service(
      [](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        return Extents(AlternatingCursor(uint64_t{1} << 55, 4096));
      },
      options);
  rpc::ListRequest request = RequestTo(service.server->address());
  // It would go on where each stream ended.
  request.retry_for = milliseconds(0);
  const auto listed = ListAll(request);
  EXPECT_EQ(listed.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(listed.status().ToString(), HasSubstr("longer than the server allows"));
}

// --- what a client sees --------------------------------------------------------------------------

// A client that vanished between two calls without closing.
TEST(Connections, ThatAnswerNoPingAreClosedAlsoWithoutAStream) {
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return absl::NotFoundError("none");
  });
  const TempDir dir;
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.connection.keepalive_time = milliseconds(200);
  options.connection.keepalive_timeout = milliseconds(200);
  const auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(client, 0);
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  (dir / "s").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  // The HTTP/2 preface, and settings that change nothing.
  constexpr std::string_view kHello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  ASSERT_EQ(send(client, kHello.data(), kHello.size(), 0), ssize_t{kHello.size()});
  const timeval limit = {.tv_sec = 10, .tv_usec = 0};
  ASSERT_EQ(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  std::array<char, 4096> said;
  ssize_t count = 1;
  while (count > 0) count = recv(client, said.data(), said.size(), 0);
  EXPECT_EQ(count, 0) << "still open after ten seconds";
  close(client);
}

TEST(Client, SummariesComeAheadOfTheStreamAlsoThroughARelay) {
  const Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    MetadataSource source = Extents(CursorOver({{0, 4096}, {8192, 4096}}, kMiB));
    source.summary = [](uint64_t offset) {
      return StreamSummary{.bytes = offset < 8192 ? 8192 : 4096, .tuples = 2};
    };
    return source;
  });
  const TempDir dir;
  rpc::RelayOptions options;
  options.listen = "unix://" + (dir / "relay");
  options.plugin = service.server->address();
  options.service.apis = {rpc::Api::kCsi};
  const auto relay = rpc::Relay::Start(options);
  ASSERT_OK(relay);
  for (const std::string& address : {service.server->address(), (*relay)->address()}) {
    rpc::ListRequest request = RequestTo(address);
    const auto cursor = rpc::RemoteCursor::Open(request);
    ASSERT_OK(cursor);
    EXPECT_EQ((*cursor)->summary().bytes, 8192u);
    EXPECT_EQ((*cursor)->summary().tuples, 2u);
    request.starting_offset = 8192;
    EXPECT_EQ(ValueOf(rpc::RemoteCursor::Open(request))->summary().bytes, 4096u);
  }
  const Service silent = Service::OfExtents({{0, 1}}, 4096);
  const auto cursor = rpc::RemoteCursor::Open(RequestTo(silent.server->address()));
  ASSERT_OK(cursor);
  EXPECT_FALSE((*cursor)->summary().bytes.has_value());
}

TEST(Client, ToldProgressEndsAtTheCapacity) {
  const Service service = Service::OfExtents({{0, 4096}, {8192, 4096}}, kMiB);
  std::vector<rpc::StreamProgress> reports;
  rpc::ListRequest request = RequestTo(service.server->address());
  request.on_progress = [&reports](const rpc::StreamProgress& progress) {
    reports.push_back(progress);
  };
  ASSERT_OK(ListAll(request));
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.back().covered, 1u << 20);
  EXPECT_EQ(reports.back().capacity, 1u << 20);
  EXPECT_EQ(reports.back().tuples, 2u);
  EXPECT_EQ(reports.back().reported_bytes, 8192u);
}

TEST(Client, ProgressIsToldAtMostTenTimesASecond) {
  constexpr uint64_t kTuples = 2000;
  std::vector<std::string> messages;
  for (uint64_t i = 0; i < kTuples; ++i) messages.push_back(Variable(kMiB, {{i * 100, 10}}));
  // A pause halfway, so that there are reports besides the first and the last.
  const FakeServer server([&](const FakeServer::Request& request) -> Script {
    if (request.starting_offset() > 0) {
      return {.messages = {messages.begin() + kTuples / 2, messages.end()}};
    }
    return {.messages = {messages.begin(), messages.begin() + kTuples / 2},
            .status = {grpc::StatusCode::UNAVAILABLE, "again"}};
  });
  std::vector<rpc::StreamProgress> reports;
  rpc::ListRequest request = RequestTo(server.address());
  request.on_progress = [&reports](const rpc::StreamProgress& progress) {
    reports.push_back(progress);
  };
  request.retry_for = seconds(60);
  const Stopwatch watch;
  ASSERT_OK(ListAll(request));
  const auto most = static_cast<size_t>(watch.elapsed() / milliseconds(100)) + 2;
  EXPECT_GE(reports.size(), 2u);
  EXPECT_LE(reports.size(), most);
  for (size_t i = 0; i + 1 < reports.size(); ++i) {
    // Progress covers exactly what has arrived.
    EXPECT_EQ(reports[i].covered, (reports[i].tuples - 1) * 100 + 10);
    EXPECT_EQ(reports[i].reported_bytes, reports[i].tuples * 10);
    EXPECT_LT(reports[i].tuples, reports[i + 1].tuples);
  }
  // The tuples of both streams.
  EXPECT_EQ(reports.back().tuples, kTuples);
  EXPECT_EQ(reports.back().reported_bytes, kTuples * 10);
  EXPECT_EQ(reports.back().covered, 1u << 20);
  EXPECT_GT(reports.back().tuples_per_second, 0);
}

TEST(Client, CanBeStoppedFromAnotherThread) {
  // Silence after the first message: only the token can end it.
  const Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    const auto trace = std::make_shared<CursorTrace>();
    return Extents(std::make_unique<ScriptedCursor>(
        kGiB, 1, trace, [](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          if (position == 0) {
            batch.push_back({0, 1});
            return 1;
          }
          std::this_thread::sleep_for(milliseconds(10));
          return position;
        }));
  });
  std::stop_source stop;
  rpc::ListRequest request = RequestTo(service.server->address());
  request.stop = stop.get_token();
  auto cursor = rpc::RemoteCursor::Open(request);
  ASSERT_OK(cursor);
  const Stopwatch watch;
  std::thread stopper([&stop] {
    std::this_thread::sleep_for(milliseconds(50));
    stop.request_stop();
  });
  absl::Status status;
  ExtentBatch batch;
  while (status.ok()) status = (*cursor)->Next(batch).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_LT(watch.elapsed(), seconds(10));
  stopper.join();
}

TEST(Client, TellsProvenFromEndedFromBroken) {
  const auto open = [](const PlantedServer& server) {
    rpc::ListRequest request = RequestTo(server.address());
    request.snapshot_id = std::string("target");
    return rpc::RemoteCursor::Open(request);
  };
  const PlantedServer good(rpc::Api::kCsi, "");
  auto proven = open(good);
  ASSERT_OK(proven);
  EXPECT_EQ((*proven)->completeness(), rpc::Completeness::kUnderWay);
  ASSERT_OK(Drain(**proven));
  EXPECT_EQ((*proven)->completeness(), rpc::Completeness::kProven);
  // A stream from the middle proves the rest.
  ASSERT_OK((*proven)->Seek(500'000));
  EXPECT_EQ((*proven)->completeness(), rpc::Completeness::kUnderWay);
  ASSERT_OK(Drain(**proven));
  EXPECT_EQ((*proven)->completeness(), rpc::Completeness::kProven);

  // Servers from before the proof sent only capacity and type.
  const PlantedServer older(rpc::Api::kCsi, "proof-without-header");
  auto fewer = open(older);
  ASSERT_OK(fewer);
  ASSERT_OK(Drain(**fewer));
  EXPECT_EQ((*fewer)->completeness(), rpc::Completeness::kProven);

  for (const auto& [fault, key] :
       {std::pair("wrong-proof", "cbt-tuple-count"),
        std::pair("proof-of-other-capacity", "cbt-volume-capacity-bytes"),
        std::pair("proof-of-other-type", "cbt-block-metadata-type")}) {
    SCOPED_TRACE(fault);
    const PlantedServer lying(rpc::Api::kCsi, fault);
    auto broken = open(lying);
    ASSERT_OK(broken);
    const absl::Status status = Drain(**broken).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.ToString(), HasSubstr(key));
    EXPECT_LT((*broken)->covered(), (*broken)->capacity());
  }

  const FakeServer silent(Script{.messages = {Variable(1000, {{0, 10}})}});
  auto ended = rpc::RemoteCursor::Open(RequestTo(silent.address()));
  ASSERT_OK(ended);
  ASSERT_OK(Drain(**ended));
  EXPECT_EQ((*ended)->completeness(), rpc::Completeness::kEnded);
}

TEST(Client, CompletenessHasItsWords) {
  EXPECT_EQ(rpc::CompletenessName(rpc::Completeness::kUnderWay), "under way");
  EXPECT_EQ(rpc::CompletenessName(rpc::Completeness::kEnded), "ended");
  EXPECT_EQ(rpc::CompletenessName(rpc::Completeness::kProvenFromRelay), "proven from the relay on");
  EXPECT_EQ(rpc::CompletenessName(rpc::Completeness::kProven), "proven");
}

// --- the ladder ----------------------------------------------------------------------------------

TEST(Fallback, TakesTheBestTierAndSaysWhy) {
  std::mutex mutex;
  absl::Status delta_error;
  absl::Status allocated_error;
  const auto set = [&mutex](absl::Status& error, const absl::Status& value) {
    const std::lock_guard lock(mutex);
    error = value;
  };
  const Service service([&](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    const std::lock_guard lock(mutex);
    if (const absl::Status& error = call.base.has_value() ? delta_error : allocated_error;
        !error.ok()) {
      return error;
    }
    return Extents(call.base.has_value() ? CursorOver({{0, 1}}, 4096)
                                         : CursorOver({{0, 4096}}, 4096));
  });
  rpc::ListRequest request = RequestTo(service.server->address());
  request.base_snapshot_id = std::string("base");

  auto best = rpc::OpenBestTier(request, 4096);
  ASSERT_OK(best);
  EXPECT_EQ(best->tier, rpc::Tier::kDelta);
  EXPECT_TRUE(best->refused.empty());

  for (const StatusCode code : {StatusCode::kFailedPrecondition, StatusCode::kNotFound,
                                StatusCode::kInvalidArgument, StatusCode::kUnimplemented}) {
    set(delta_error, absl::Status(code, "no delta"));
    best = rpc::OpenBestTier(request, std::nullopt);
    ASSERT_OK(best);
    EXPECT_EQ(best->tier, rpc::Tier::kAllocated);
    ASSERT_EQ(best->refused.size(), 1u);
    EXPECT_EQ(best->refused[0].second, delta_error);
    EXPECT_EQ(ValueOf(Drain(*best->cursor)), (Ranges{{0, 4096}}));
  }

  set(allocated_error, absl::UnimplementedError("nothing at all"));
  best = rpc::OpenBestTier(request, 8192);
  ASSERT_OK(best);
  EXPECT_EQ(best->tier, rpc::Tier::kWholeVolume);
  EXPECT_EQ(best->refused.size(), 2u);
  EXPECT_EQ(ValueOf(Drain(*best->cursor)), (Ranges{{0, 8192}}));
  EXPECT_EQ(rpc::OpenBestTier(request, std::nullopt).status(), allocated_error);

  // Retryable errors must not cause a full backup.
  for (const StatusCode code :
       {StatusCode::kUnavailable, StatusCode::kUnauthenticated, StatusCode::kInternal,
        StatusCode::kDataLoss, StatusCode::kResourceExhausted, StatusCode::kOutOfRange}) {
    set(delta_error, absl::Status(code, "later"));
    EXPECT_EQ(rpc::OpenBestTier(request, 8192).status().code(), code);
  }
  // A missing target is no reason to read a whole volume.
  set(delta_error, absl::NotFoundError("no target"));
  set(allocated_error, absl::NotFoundError("no target"));
  EXPECT_EQ(rpc::OpenBestTier(request, 8192).status().code(), StatusCode::kNotFound);
}

TEST(Fallback, TiersHaveTheirWords) {
  EXPECT_EQ(rpc::TierName(rpc::Tier::kDelta), "delta");
  EXPECT_EQ(rpc::TierName(rpc::Tier::kAllocated), "allocated");
  EXPECT_EQ(rpc::TierName(rpc::Tier::kWholeVolume), "whole volume");
  // There is nothing below the last tier.
  EXPECT_FALSE(rpc::FallsBack(rpc::Tier::kWholeVolume, absl::UnimplementedError("")));
  EXPECT_TRUE(rpc::FallsBack(rpc::Tier::kAllocated, absl::UnimplementedError("")));
}

TEST(Fallback, WithoutABaseItBeginsAtWhatIsAllocated) {
  Service service([](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    EXPECT_FALSE(call.base.has_value());
    if (call.target != "s") return absl::UnimplementedError("no metadata");
    return Extents(CursorOver({{0, 4096}}, 8192));
  });
  rpc::ListRequest request = RequestTo(service.server->address());
  auto best = rpc::OpenBestTier(request, std::nullopt);
  ASSERT_OK(best);
  EXPECT_EQ(best->tier, rpc::Tier::kAllocated);
  EXPECT_TRUE(best->refused.empty());
  EXPECT_EQ(service.provider.calls, 1);
  request.snapshot_id = std::string("other");
  best = rpc::OpenBestTier(request, 8192);
  ASSERT_OK(best);
  EXPECT_EQ(best->tier, rpc::Tier::kWholeVolume);
  ASSERT_EQ(best->refused.size(), 1u);
  EXPECT_EQ(best->refused[0].first, rpc::Tier::kAllocated);
  EXPECT_EQ(service.provider.calls, 2);
}

TEST(Fallback, TheWholeVolumeIsWhole) {
  const Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return absl::UnimplementedError("no metadata");
  });
  for (const uint64_t capacity : {uint64_t{0}, uint64_t{1}, uint64_t{8192}}) {
    const auto best = rpc::OpenBestTier(RequestTo(service.server->address()), capacity);
    ASSERT_OK(best);
    EXPECT_EQ(best->tier, rpc::Tier::kWholeVolume);
    EXPECT_EQ(best->cursor->capacity(), capacity);
    EXPECT_EQ(ValueOf(Drain(*best->cursor)), capacity == 0 ? Ranges{} : (Ranges{{0, capacity}}));
  }
  EXPECT_FALSE(rpc::OpenBestTier(RequestTo(service.server->address()), kMaxCapacity + 1).ok());
}

TEST(Fallback, FromTheMiddleOnlyTheFirstTierAnswers) {
  const Service service([](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    if (call.base == "gone") return absl::NotFoundError("no such base");
    if (call.target == "nothing") return absl::UnimplementedError("no metadata");
    return Extents(CursorOver({{0, 8192}}, 8192));
  });
  rpc::ListRequest request = RequestTo(service.server->address());
  const auto open = [&request](std::optional<std::string> base, const std::string& target) {
    request.base_snapshot_id = std::move(base);
    request.snapshot_id = target;
    return rpc::OpenBestTier(request, 8192);
  };
  const auto refused = [](const absl::StatusOr<rpc::Fallback>& best, StatusCode code) {
    EXPECT_EQ(best.status().code(), code);
    EXPECT_NE(best.status().message().find("start from offset 0"), absl::string_view::npos)
        << best.status();
  };
  for (const uint64_t offset : {uint64_t{1}, uint64_t{4096}, uint64_t{8192}}) {
    request.starting_offset = offset;
    // The data before the offset may have come from a delta or an allocation.
    refused(open("gone", "s"), StatusCode::kNotFound);
    refused(open("gone", "nothing"), StatusCode::kNotFound);
    refused(open(std::nullopt, "nothing"), StatusCode::kUnimplemented);
    // A caller that names the tier gets it.
    const auto delta = open("base", "s");
    ASSERT_OK(delta);
    EXPECT_EQ(delta->tier, rpc::Tier::kDelta);
    const auto allocated = open(std::nullopt, "s");
    ASSERT_OK(allocated);
    EXPECT_EQ(allocated->tier, rpc::Tier::kAllocated);
  }
  request.starting_offset = 0;
  EXPECT_EQ(open("gone", "s")->tier, rpc::Tier::kAllocated);
  EXPECT_EQ(open("gone", "nothing")->tier, rpc::Tier::kWholeVolume);
}

}  // namespace options_test
}  // namespace cbt::test
