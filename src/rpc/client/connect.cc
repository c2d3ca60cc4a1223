#include "rpc/client/connect.h"

#include <algorithm>
#include <utility>

#include "rpc/http2/channel.h"
#include "rpc/http2/client_loop.h"

namespace cbt::rpc {

absl::StatusOr<std::shared_ptr<Channel>> ConnectForOneStream(const net::Address& address,
                                                             const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls, {.reconnect_at_once = true});
}

absl::StatusOr<std::shared_ptr<Channel>> ConnectForConsumer(const net::Address& address,
                                                            const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls,
                            {.reconnect_at_once = true, .events_in_waiting_threads = true});
}

absl::StatusOr<std::shared_ptr<Channel>> ConnectForGood(const net::Address& address,
                                                        const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls);
}

absl::StatusOr<std::vector<std::shared_ptr<Channel>>> ConnectInLoops(const net::Address& address,
                                                                     const ClientTlsOptions& tls,
                                                                     net::LoopThreads& loops) {
  std::vector<std::shared_ptr<Channel>> channels(loops.size());
  for (size_t i = 0; i < loops.size(); ++i) {
    // It does not own the threads: the last channel ends in one of them.
    auto loop = std::make_shared<const http2::ClientLoop>(
        http2::ClientLoop{&loops.loop(i), &loops.chunks(i)});
    auto channel = http2::MakeChannel(address, tls, {}, std::move(loop));
    if (!channel.ok()) return channel.status();
    channels[i] = *std::move(channel);
  }
  return channels;
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackoff{100};
constexpr milliseconds kLastBackoff{5000};
// Far below the clock's overflow.
constexpr milliseconds kLongest = std::chrono::hours{24 * 365};

// Differs between the clients of one machine. std::random_device may throw.
uint32_t Seed(const void* self) noexcept {
  const auto now = static_cast<uint64_t>(RetryWindow::Clock::now().time_since_epoch().count());
  const uint64_t mixed = (now ^ reinterpret_cast<uintptr_t>(self)) * 0x9e3779b97f4a7c15u;
  return static_cast<uint32_t>(mixed >> 32);
}

}  // namespace

RetryWindow::RetryWindow(milliseconds length)
    : length_(std::min(length, kLongest)), random_(Seed(this)) {}

std::optional<milliseconds> RetryWindow::NextWait(Clock::time_point now) {
  if (!began_.has_value()) {
    began_ = now;
    backoff_ = kFirstBackoff;
  }
  const auto passed = std::chrono::floor<milliseconds>(now - *began_);
  if (passed >= length_) return std::nullopt;
  std::uniform_int_distribution<milliseconds::rep> wait(backoff_.count() / 2, backoff_.count());
  const milliseconds next(wait(random_));
  backoff_ = std::min(2 * backoff_, kLastBackoff);
  return std::min(next, length_ - passed);
}

}  // namespace cbt::rpc
