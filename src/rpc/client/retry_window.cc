#include "rpc/client/retry_window.h"

#include <algorithm>

namespace cbt::rpc {
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
