// When a client tries again after a failure, and when it gives up.
#ifndef CBT_RPC_CLIENT_RETRY_WINDOW_H_
#define CBT_RPC_CLIENT_RETRY_WINDOW_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

namespace cbt::rpc {

// The waits between attempts. The first failure opens a window of time; attempts follow each other
// until it is used up, the last one at its very end. Progress closes the window. Waits double from
// 0.1 s to 5 s; each is shortened by a random part of at most half, so that clients of a server
// that restarts do not come back all at once. Belongs to one thread at a time.
class RetryWindow {
 public:
  using Clock = std::chrono::steady_clock;

  // `length` <= 0: no attempt but the first.
  explicit RetryWindow(std::chrono::milliseconds length);

  // Something arrived that had not arrived before.
  void NoteProgress() noexcept { began_.reset(); }

  // An attempt failed at `now`: the time to wait before the next one; empty if it was the last.
  std::optional<std::chrono::milliseconds> NextWait(Clock::time_point now);

 private:
  const std::chrono::milliseconds length_;
  std::optional<Clock::time_point> began_;  // of the first failure since the last progress
  std::chrono::milliseconds backoff_{0};
  std::minstd_rand random_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_RETRY_WINDOW_H_
