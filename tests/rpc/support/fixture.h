// A server over a test's own provider, on its own Unix socket.
#ifndef CBT_TESTS_RPC_SUPPORT_FIXTURE_H_
#define CBT_TESTS_RPC_SUPPORT_FIXTURE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cbt/rpc/server.h"
#include "tests/rpc/support/providers.h"
#include "tests/rpc/support/raw_call.h"
#include "tests/rpc/support/truth.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {

class Service {
 public:
  explicit Service(FunctionProvider::Function function, rpc::StreamOptions stream = {})
      : provider(std::move(function)) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    options.service.stream = stream;
    server = ValueOf(rpc::Server::Start(provider, options));
    channel = Connect(server->address());
  }

  // Serves these ranges of a volume as extents, under any name.
  static Service OfExtents(const reference::Ranges& ranges, uint64_t capacity,
                           uint64_t granularity = 1, rpc::StreamOptions stream = {}) {
    return Service(
        [=](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          return Extents(CursorOver(ranges, capacity, granularity));
        },
        stream);
  }

  // Serves them as blocks.
  static Service OfBlocks(const reference::Ranges& ranges, uint64_t capacity, uint64_t block_size,
                          rpc::StreamOptions stream = {}) {
    return Service(
        [=](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          return Blocks(CursorOver(ranges, capacity), block_size);
        },
        stream);
  }

  static Service Of(const Truth& truth) {
    return Service([=](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
      return truth.Source();
    });
  }

  Answer Get(const Ask& ask) const { return test::Get(channel, ask); }

  TempDir dir;
  FunctionProvider provider;
  std::unique_ptr<rpc::Server> server;
  std::shared_ptr<grpc::Channel> channel;
};

// Waits until `condition` holds; returns false after `limit`.
inline bool Eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class Stopwatch {
 public:
  std::chrono::milliseconds elapsed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 start_);
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_FIXTURE_H_
