// Servers and relays shut down with hundreds of open streams: no client takes a part for the whole,
// and nothing hangs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/units.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace drain_test {

using std::chrono::milliseconds;

// Only a hang takes that long.
constexpr std::chrono::seconds kHang{120};

// Streams that are never read to the end before the drain, and some that may be.
constexpr uint64_t kEndless = uint64_t{1} << 46;
constexpr uint64_t kShort = kMiB;
constexpr uint64_t kShortTuples = kShort / 1024;

struct Ends {
  uint64_t streams = 0;
  uint64_t whole = 0;
  uint64_t refused = 0;    // ended with an error
  uint64_t truncated = 0;  // ended with OK, but incomplete
  uint64_t hung = 0;
};

struct OpenStream {
  std::unique_ptr<RawCall> call;
  bool endless = true;
  uint64_t tuples = 0;
  bool over = false;
};

// Reads one message, or records the status at the end of the stream.
void Step(OpenStream& stream, Ends& ends, std::mutex& mutex) {
  if (const std::optional<std::string> bytes = stream.call->Read()) {
    Response message;
    ASSERT_TRUE(message.ParseFromString(*bytes));
    stream.tuples += static_cast<uint64_t>(message.block_metadata_size());
    return;
  }
  stream.over = true;
  const grpc::Status status = stream.call->Finish();
  const std::lock_guard lock(mutex);
  ++ends.streams;
  const bool whole = !stream.endless && stream.tuples == kShortTuples;
  if (status.ok()) {
    ++(whole ? ends.whole : ends.truncated);
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    ++ends.hung;
  } else {
    ++ends.refused;
  }
}

// At full scale (CBT_TEST_SCALE=10): 500 streams, 50 times.
size_t Streams() { return static_cast<size_t>(std::min<int64_t>(500, 50 * TestScale())); }
int Rounds() { return static_cast<int>(std::min<int64_t>(50, 5 * TestScale())); }

// Drains a server or relay at `address` with many open streams: some being read, some stalled until
// the drain begins.
template <typename Served>
void DrainUnder(Served& served, const std::string& address, int round, Ends& ends) {
  const size_t streams = Streams();
  constexpr size_t kReaders = 4;
  constexpr size_t kStreamsPerChannel = 50;
  std::vector<std::vector<OpenStream>> shares(kReaders);
  std::shared_ptr<grpc::Channel> channel;
  for (size_t i = 0; i < streams; ++i) {
    if (i % kStreamsPerChannel == 0) channel = Connect(address);
    const bool endless = i % 8 != 7;
    const Ask ask = {.snapshot = endless ? "endless" : "short", .max_results = i % 3 == 0 ? 10 : 0};
    shares[i % kReaders].push_back(
        {.call = std::make_unique<RawCall>(channel, ask.path(), ask.bytes(),
                                           std::chrono::duration_cast<milliseconds>(kHang)),
         .endless = endless});
  }
  std::mutex mutex;
  // Every endless stream has begun; a short one may have been sent already.
  for (auto& share : shares) {
    for (OpenStream& stream : share) Step(stream, ends, mutex);
  }
  EXPECT_GE(served.open_streams(), streams * 7 / 8 / 2);
  std::atomic<bool> draining = false;
  std::vector<std::thread> readers;
  for (size_t reader = 0; reader < kReaders; ++reader) {
    readers.emplace_back([&, reader] {
      // Half of the readers read all the time; the other half starts with the drain.
      if (reader % 2 == 1) draining.wait(false);
      bool any = true;
      while (any) {
        any = false;
        for (OpenStream& stream : shares[reader]) {
          if (stream.over) continue;
          any = true;
          Step(stream, ends, mutex);
        }
      }
    });
  }
  auto drain = std::async(std::launch::async, [&] {
    draining = true;
    draining.notify_all();
    served.Shutdown(milliseconds(round % 3 * 20));
  });
  // The streams have the same deadline: even if the drain hangs, the readers return.
  if (drain.wait_for(kHang) != std::future_status::ready) {
    const std::lock_guard lock(mutex);
    ++ends.hung;
  }
  for (std::thread& reader : readers) reader.join();
  drain.get();
  EXPECT_EQ(served.open_streams(), 0u);
}

// Finite and endless volumes below `dir`.
struct Plugin {
  explicit Plugin(const TempDir& dir) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "plugin");
    server = ValueOf(rpc::Server::Start(provider, options));
  }

  FunctionProvider provider{
      [](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
        return Extents(AlternatingCursor(call.target == "endless" ? kEndless : kShort, 512));
      }};
  std::unique_ptr<rpc::Server> server;
};

std::unique_ptr<rpc::Relay> RelayBefore(const Plugin& plugin, const TempDir& dir) {
  rpc::RelayOptions options;
  options.listen = "unix://" + (dir / "relay");
  options.plugin = plugin.server->address();
  options.service.apis = {rpc::Api::kCsi};
  return ValueOf(rpc::Relay::Start(options));
}

void Judge(const Ends& ends, const char* what) {
  EXPECT_EQ(ends.streams, Streams() * static_cast<uint64_t>(Rounds()));
  EXPECT_EQ(ends.truncated, 0u);
  EXPECT_EQ(ends.hung, 0u);
  EXPECT_GT(ends.refused, 0u);
  const std::string name = std::string("r16_") + what;
  PrintFigure(name + "_streams_drained", ends.streams);
  PrintFigure(name + "_streams_refused", ends.refused);
  PrintFigure(name + "_streams_whole", ends.whole);
  PrintFigure(name + "_ok_on_truncated", ends.truncated);
  PrintFigure(name + "_hangs", ends.hung);
}

TEST(Drain, E13AServerUnderLoad) {
  Ends ends;
  for (int round = 0; round < Rounds(); ++round) {
    const TempDir dir;
    const Plugin plugin(dir);
    DrainUnder(*plugin.server, plugin.server->address(), round, ends);
  }
  Judge(ends, "server");
}

TEST(Drain, E13ARelayUnderLoad) {
  Ends ends;
  const TempDir dir;
  const Plugin plugin(dir);
  for (int round = 0; round < Rounds(); ++round) {
    const auto relay = RelayBefore(plugin, dir);
    DrainUnder(*relay, relay->address(), round, ends);
  }
  Judge(ends, "relay");
}

// The plugin stops while the relay stays: its streams break off, and the relay reports it.
TEST(Drain, E13APluginUnderLoadBehindARelay) {
  Ends ends;
  const TempDir dir;
  for (int round = 0; round < Rounds(); ++round) {
    const Plugin plugin(dir);
    const auto relay = RelayBefore(plugin, dir);
    DrainUnder(*plugin.server, relay->address(), round, ends);
  }
  Judge(ends, "plugin");
}

}  // namespace drain_test
}  // namespace cbt::test
