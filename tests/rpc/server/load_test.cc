// Many streams: stalled readers, short-lived streams, hostile requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/units.h"
#include "tests/rpc/support/descriptors.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace load_test {

using std::chrono::seconds;

#ifdef CBT_TEST_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Resident memory in KiB.
long ResidentKib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "VmRSS:") {
      long kib = 0;
      status >> kib;
      return kib;
    }
  }
  return -1;
}

// A relay of the CSI contract on its own Unix socket.
class RelayBefore {
 public:
  explicit RelayBefore(const Service& plugin) {
    rpc::RelayOptions options;
    options.listen = "unix://" + (dir_ / "relay");
    options.plugin = plugin.server->address();
    options.service.apis = {rpc::Api::kCsi};
    relay_ = ValueOf(rpc::Relay::Start(options));
  }
  rpc::Relay* operator->() const { return relay_.get(); }

 private:
  const TempDir dir_;
  std::unique_ptr<rpc::Relay> relay_;
};

// Waits until `count` is stable: everything that can be produced ahead has been.
bool Settles(const std::atomic<int>& count) {
  int last = -1;
  int same = 0;
  return Eventually(
      [&] {
        const int now = count;
        same = now == last ? same + 1 : 0;
        last = now;
        return same >= 100;
      },
      seconds(60));
}

// A stalled reader may cost its server 64 KiB and a message. The reader is in the same process and
// costs as much again: what HTTP/2 lets the server send ahead, and its call.
void ExpectStalledReadersCostLittle(size_t message_bytes) {
  const int count = kSanitized ? 100 : 1000;
  const auto trace = std::make_shared<CursorTrace>();
  rpc::StreamOptions options;
  options.max_streams = 1100;
  options.message_bytes = message_bytes;
  const Service service(
      [&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        return Extents(AlternatingCursor(uint64_t{1} << 55, 4096, trace));
      },
      options);
  malloc_trim(0);  // memory freed by other tests would hide growth
  const long before = ResidentKib();
  // A hundred streams per connection: more would block each other in the client.
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<RawCall>> calls;
  csi::v1::GetMetadataAllocatedRequest request;
  request.set_snapshot_id("s");
  for (int i = 0; i < count; ++i) {
    if (i % 100 == 0) channels.push_back(Connect(service.server->address()));
    calls.push_back(
        std::make_unique<RawCall>(channels.back(), kAllocatedPath, request.SerializeAsString()));
    ASSERT_TRUE(calls.back()->Read().has_value()) << i;
  }
  EXPECT_EQ(service.server->open_streams(), static_cast<size_t>(count));
  ASSERT_TRUE(Settles(trace->next_calls)) << "streams of stalled readers never end";
  const long grown = ResidentKib() - before;
  const long promised = 2 * (64 + static_cast<long>(message_bytes >> 10));
  std::printf("%d stalled streams, messages of %zu KiB: %ld KiB each\n", count, message_bytes >> 10,
              grown / count);
  if (!kSanitized) {
    EXPECT_LT(grown / count, promised * 3 / 2) << "KiB for each stream";
  }

  // Other clients are served meanwhile.
  const Stopwatch watch;
  rpc::ListRequest fresh;
  fresh.address = service.server->address();
  fresh.snapshot_id = std::string("s");
  ASSERT_OK_AND_ASSIGN(const auto cursor, rpc::RemoteCursor::Open(fresh));
  ExtentBatch batch;
  for (int i = 0; i < 100; ++i) ASSERT_OK(cursor->Next(batch));
  EXPECT_LT(watch.elapsed(), seconds(5));
  for (const auto& call : calls) call->Cancel();
}

TEST(Load, AThousandStalledReadersOfSmallMessagesCostLittleAndHoldUpNoOther) {
  ExpectStalledReadersCostLittle(10 * kKiB);
}

TEST(Load, AThousandStalledReadersOfLargeMessagesCostLittleAndHoldUpNoOther) {
  ExpectStalledReadersCostLittle(rpc::StreamOptions().message_bytes);
}

TEST(Load, TenThousandShortStreamsLeakNothing) {
  const int count = kSanitized ? 1000 : 10'000;
  const Service plugin = Service::OfExtents({{0, 4096}, {8192, 4096}}, kMiB);
  const RelayBefore relay(plugin);
  csi::v1::GetMetadataAllocatedRequest request;
  request.set_snapshot_id("s");
  const std::string bytes = request.SerializeAsString();
  const auto run = [&](int streams) {
    std::shared_ptr<grpc::Channel> channel;
    for (int i = 0; i < streams; ++i) {
      // Enough connections for the first ones to reach every loop of the relay, each of which has
      // its own connection to the plugin.
      if (i % 50 == 0) channel = Connect(relay->address());
      RawCall call(channel, kAllocatedPath, bytes);
      if (i % 10 == 0) continue;  // abandoned, as clients do
      const Answer answer = ReadAll(call);
      ASSERT_OK(answer.status);
    }
  };
  run(count / 5);
  ASSERT_TRUE(Eventually([&] { return relay->open_streams() == 0; }));
  malloc_trim(0);  // free memory is no leak
  const long resident = ResidentKib();
  const size_t descriptors = OpenDescriptors();
  run(count);
  ASSERT_TRUE(Eventually([&] { return relay->open_streams() == 0; }));
  EXPECT_TRUE(Eventually([&] { return plugin.server->open_streams() == 0; }));
  malloc_trim(0);
  const long grown = ResidentKib() - resident;
  EXPECT_TRUE(kSanitized || grown < 4096) << grown << " KiB";
  EXPECT_LE(DescriptorsComeDownTo(descriptors), descriptors);
}

// Each client stays below the limit for floods; the plugin sees all of them from one relay.
TEST(Load, ClientsThatGiveUpTheirStreamsCutNoOtherOffFromThePlugin) {
  const Service plugin([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(uint64_t{1} << 55, 4096, std::make_shared<CursorTrace>()));
  });
  const RelayBefore relay(plugin);
  csi::v1::GetMetadataAllocatedRequest request;
  request.set_snapshot_id("s");
  const std::string bytes = request.SerializeAsString();
  RawCall other(Connect(relay->address()), kAllocatedPath, bytes);
  ASSERT_TRUE(other.Read().has_value());
  for (int client = 0; client < 6; ++client) {
    const auto channel = Connect(relay->address());
    for (int i = 0; i < 150; ++i) {
      RawCall call(channel, kAllocatedPath, bytes);
      ASSERT_TRUE(call.Read().has_value()) << client << " " << i;
    }
  }
  // More than what was in flight.
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(other.Read().has_value()) << i;
}

TEST(Load, RequestsThatAreMadeToHurtAreRefusedWithinLimits) {
  const Service service = Service::OfExtents({{0, 1}}, 4096);
  const auto ask = [&](const std::string& bytes) {
    RawCall call(service.channel, kAllocatedPath, bytes);
    return ReadAll(call).status.error_code();
  };
  csi::v1::GetMetadataAllocatedRequest request;
  request.set_snapshot_id(std::string(2 * kMiB, 'x'));
  EXPECT_EQ(ask(request.SerializeAsString()), grpc::StatusCode::RESOURCE_EXHAUSTED);
  request.set_snapshot_id("s");
  for (int i = 0; i < 100'000; ++i) {
    (*request.mutable_secrets())["key" + std::to_string(i)] = "value";
  }
  EXPECT_EQ(ask(request.SerializeAsString()), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // A request that fits the size limit may still have too many entries.
  for (const int secrets : {1024, 1025, 3000}) {
    request.clear_secrets();
    for (int i = 0; i < secrets; ++i) {
      (*request.mutable_secrets())["key" + std::to_string(i)] = "value";
    }
    EXPECT_EQ(ask(request.SerializeAsString()),
              secrets == 1024 ? grpc::StatusCode::OK : grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_NE(ask(std::string(1000, '\xff')), grpc::StatusCode::OK);
  EXPECT_NE(ask(std::string(100'000, '\x0b')), grpc::StatusCode::OK);
  request.clear_secrets();
  EXPECT_EQ(ask(request.SerializeAsString()), grpc::StatusCode::OK);
}

// For many k: a prefix and an error, never an end.
TEST(Load, E14ProvidersThatFailAfterKTuplesNeverLookComplete) {
  for (uint64_t k = 0; k < 300; k = k < 20 ? k + 1 : k + 37) {
    for (const bool through_relay : {false, true}) {
      const Service service([k](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        const auto trace = std::make_shared<CursorTrace>();
        return Extents(std::make_unique<ScriptedCursor>(
            kGiB, 4096, trace,
            [k](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
              const uint64_t done = position / 8192;
              if (done >= k) return absl::DataLossError("the disk is gone");
              for (uint64_t i = done; i < k && !batch.full(); ++i) {
                batch.push_back({i * 8192, 4096});
              }
              return batch.back().offset + 8192;
            }));
      });
      const RelayBefore relay(service);
      rpc::ListRequest request;
      request.address = through_relay ? relay->address() : service.server->address();
      request.snapshot_id = std::string("s");
      request.max_results = 7;
      auto cursor = rpc::RemoteCursor::Open(request);
      if (k == 0) {
        EXPECT_EQ(cursor.status().code(), absl::StatusCode::kDataLoss);
        continue;
      }
      ASSERT_OK(cursor);
      uint64_t tuples = 0;
      const absl::Status status = ForEachBatch(**cursor, [&](const ExtentBatch& batch) {
        tuples += batch.size();
        return absl::OkStatus();
      });
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << k;
      EXPECT_EQ(tuples, k);
      EXPECT_EQ((*cursor)->completeness(), rpc::Completeness::kUnderWay);
    }
  }
}

}  // namespace load_test
}  // namespace cbt::test
