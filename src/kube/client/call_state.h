// A call from its start to its end.
#ifndef CBT_KUBE_CLIENT_CALL_STATE_H_
#define CBT_KUBE_CLIENT_CALL_STATE_H_

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "kube/client/answer.h"
#include "kube/client/transfer.h"

namespace cbt::kube {

// What Cancel() needs of the client; outlives it.
class Waker {
 public:
  virtual ~Waker() = default;
  // Makes the client's thread look for calls that were cancelled. Any thread.
  virtual void WakeForCancel() noexcept = 0;
};

class CallState : public std::enable_shared_from_this<CallState> {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CallState(std::weak_ptr<Waker> waker) : waker_(std::move(waker)) {}

  Call MakeCall() { return Call(weak_from_this()); }

  void Cancel() noexcept {
    cancelled_.store(true);
    if (const std::shared_ptr<Waker> waker = waker_.lock()) waker->WakeForCancel();
  }
  bool cancelled() const noexcept { return cancelled_.load(); }

  // --- Set before the call is started.

  WireRequest request;
  std::optional<StreamSink> sink;
  absl::Status refusal;  // not OK: what was asked for is no request
  std::function<void(absl::StatusOr<Answer>)> done;
  // For a series of requests: replaces `request` and returns true if there is another one.
  std::function<bool(const absl::StatusOr<Answer>& answer)> next;
  std::chrono::milliseconds request_timeout{0};  // of each
  Clock::time_point deadline = Clock::time_point::max();
  // Streams: how long until the head, and between two pieces after it. zero: no limit.
  Clock::time_point open_deadline = Clock::time_point::max();
  std::chrono::milliseconds idle_timeout{0};

  // --- The client's thread's own.

  enum class Phase {
    kWaiting,  // for its turn
    kOnWire,
    kPause,  // before the next attempt
  };
  Phase phase = Phase::kWaiting;
  std::unique_ptr<Transfer> transfer;
  Clock::time_point resume_at{};  // kPause
  int retries = 0;
  int doubtful_retries = 0;  // of these, those without the server's word that it did nothing
  bool rejected = false;     // it was answered 401 before
  absl::Status last_error;   // of the attempt before
  std::list<std::shared_ptr<CallState>>::iterator place;

 private:
  const std::weak_ptr<Waker> waker_;
  std::atomic<bool> cancelled_{false};
};

// Has no text, so it needs no memory.
inline absl::Status OutOfMemory() noexcept { return {absl::StatusCode::kResourceExhausted, ""}; }

// What `make` returns, an absl::Status or absl::StatusOr; RESOURCE_EXHAUSTED if it throws.
template <typename Make>
std::invoke_result_t<Make> OrOutOfMemory(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::exception&) {
    return OutOfMemory();
  }
}

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_CALL_STATE_H_
