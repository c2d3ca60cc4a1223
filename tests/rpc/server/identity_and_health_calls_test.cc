// Calls without a token: what one address leaves to others.
#include "rpc/server/identity_and_health_calls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "rpc/server/health_service.h"
#include "rpc/server/reflection_service.h"

namespace cbt::rpc {
namespace small_calls_test {

// A client that has sent its request and reads nothing.
class SilentCall final : public ServerCall {
 public:
  explicit SilentCall(std::string peer) : peer_(std::move(peer)) {}

  std::optional<std::chrono::system_clock::time_point> deadline() const override {
    return std::nullopt;
  }
  std::string peer() const override { return peer_; }
  void StartRead() noexcept override {}
  void AddInitialMetadata(std::string_view, std::string_view) override {}
  void AddTrailingMetadata(std::string_view, std::string_view) override {}
  void Write(absl::Cord) noexcept override {}
  void Finish(absl::Status) noexcept override {}
  void WriteAndFinish(absl::Cord) noexcept override {}
  void Cancel() noexcept override {}

 private:
  const std::string peer_;
};

class Clients {
 public:
  using Open = std::function<absl::StatusOr<CallHandler*>(ServerCall&)>;

  explicit Clients(Open open) : open_(std::move(open)) {}
  ~Clients() {
    for (CallHandler* const handler : open_calls_) handler->OnDone();
  }

  // How many calls of this address are taken, of `number`.
  size_t Take(const std::string& peer, size_t number) {
    size_t taken = 0;
    for (size_t i = 0; i < number; ++i) {
      const absl::StatusOr<CallHandler*> handler = open_(calls_.emplace_back(peer));
      if (handler.ok()) {
        ++taken;
        open_calls_.push_back(*handler);
      } else {
        EXPECT_EQ(handler.status().code(), absl::StatusCode::kResourceExhausted);
      }
    }
    return taken;
  }

 private:
  const Open open_;
  std::deque<SilentCall> calls_;
  std::vector<CallHandler*> open_calls_;
};

Clients::Open MethodOf(const Service& service, std::string_view path) {
  for (const Service::Method& method : service.methods()) {
    if (method.path == path) {
      return [&method](ServerCall& call) { return method.open(call, absl::Cord()); };
    }
  }
  ADD_FAILURE() << path;
  return {};
}

void ExpectFairness(const Clients::Open& open, size_t places) {
  Clients clients(open);
  EXPECT_EQ(clients.Take("192.0.2.1", places * 2), places / 2);
  EXPECT_EQ(clients.Take("192.0.2.2", 10), 10U);
  EXPECT_EQ(clients.Take("192.0.2.1", 1), 0U);
}

TEST(SmallCallsOf, YOneAddressLeavesIdentityToOthers) {
  IdentityAndHealthCalls calls(std::chrono::hours(1), {});
  const IdentityAndHealthCalls::Answer answer = [](std::span<const uint8_t>) {
    return std::string("answer");
  };
  ExpectFairness([&](ServerCall& call) { return calls.Open(call, absl::Cord(), answer); },
                 IdentityAndHealthCalls::kMaxCalls);
}

TEST(SmallCallsOf, YOneAddressLeavesHealthWatchesToOthers) {
  IdentityAndHealthCalls calls(std::chrono::hours(1), {});
  HealthService health(calls, std::chrono::hours(1), {});
  ExpectFairness(MethodOf(health, "/grpc.health.v1.Health/Watch"), HealthService::kMaxWatches);
  ExpectFairness(MethodOf(health, "/grpc.health.v1.Health/Check"),
                 IdentityAndHealthCalls::kMaxCalls);
}

TEST(SmallCallsOf, YOneAddressLeavesReflectionToOthers) {
  const ReflectionService reflection({}, std::chrono::hours(1));
  ExpectFairness(MethodOf(reflection, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
                 ReflectionService::kMaxCalls);
}

}  // namespace small_calls_test
}  // namespace cbt::rpc
