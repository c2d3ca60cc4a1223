// The open calls of a server: counts streams and pages, ends them when the server drains, cancels
// those that stall or last too long.
#ifndef CBT_RPC_SERVER_STREAM_REGISTRY_H_
#define CBT_RPC_SERVER_STREAM_REGISTRY_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fair_places.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

// How long the last callbacks of a cancelled call may take.
inline constexpr std::chrono::milliseconds kAbortTime{1000};

// A call that the registry watches, such as a stream or a page.
class ServedCall {
 public:
  virtual ~ServedCall() = default;

  // Ends the call with `status`, unless it has already ended.
  virtual void End(absl::Status status) = 0;

  // Cancels the call, even if the client reads nothing.
  virtual void Abort() = 0;

  // Aborts the call if its client has taken nothing in flight for longer than `stall`; ends it if
  // it is open for longer than `total` (zero: no limit).
  virtual void CheckTimes(std::chrono::milliseconds stall, std::chrono::milliseconds total) = 0;

  // Records why the call ends; the first reason counts.
  void NoteReason(EndReason reason) noexcept {
    int none = -1;
    reason_.compare_exchange_strong(none, static_cast<int>(reason));
  }
  EndReason reason() const noexcept {
    const int reason = reason_;
    return reason < 0 ? EndReason::kSource : static_cast<EndReason>(reason);
  }

  // Whether the transport should have released the call by now: it was cancelled kAbortTime ago.
  bool Overdue() const noexcept {
    const Clock::rep at = cancelled_at_;
    return at != 0 &&
           Clock::now().time_since_epoch().count() - at > Clock::duration(kAbortTime).count();
  }

 protected:
  void NoteCancelled() noexcept {
    Clock::rep never = 0;
    cancelled_at_.compare_exchange_strong(never, Clock::now().time_since_epoch().count());
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::atomic<int> reason_ = -1;
  std::atomic<Clock::rep> cancelled_at_ = 0;  // 0: not cancelled
};

// The right to be one of max_streams, released by the destructor. It may outlive the registry: an
// access check may hold a stream indefinitely.
class StreamSlot {
 public:
  // `taken` already counts this slot.
  explicit StreamSlot(std::shared_ptr<std::atomic<size_t>> taken) noexcept
      : taken_(std::move(taken)) {}
  ~StreamSlot() {
    if (taken_ != nullptr) --*taken_;
  }
  StreamSlot(StreamSlot&& other) noexcept = default;
  StreamSlot& operator=(StreamSlot&&) = delete;
  StreamSlot(const StreamSlot&) = delete;
  StreamSlot& operator=(const StreamSlot&) = delete;

 private:
  std::shared_ptr<std::atomic<size_t>> taken_;
};

// The open streams and pages of a server. Thread safe.
class StreamRegistry {
 public:
  // `total_time`: how long a stream may be open; zero: no limit. Throws std::system_error if the
  // watching thread can't be started.
  StreamRegistry(size_t max_streams, std::chrono::milliseconds stall_timeout,
                 std::chrono::milliseconds total_time);
  ~StreamRegistry();
  StreamRegistry(const StreamRegistry&) = delete;
  StreamRegistry& operator=(const StreamRegistry&) = delete;

  // For a call that has not been admitted yet, from a client of this address (ServerCall::peer()).
  // Such calls have places of their own, which addresses share fairly: who waits for an access
  // check, or is refused by one, takes none of max_streams. Give it back when the call is admitted
  // or ends. Errors: RESOURCE_EXHAUSTED, UNAVAILABLE while draining.
  absl::StatusOr<FairPlaces::Place> Enter(const std::string& peer);

  // A slot is held until the provider's call returns, even if the stream has ended: clients that
  // come and go can't pile up work. Errors: RESOURCE_EXHAUSTED if max_streams are taken,
  // UNAVAILABLE while draining.
  absl::StatusOr<StreamSlot> TakeSlot();

  // Keeps `stream` alive until Remove().
  // Errors: UNAVAILABLE while draining.
  absl::Status Add(std::shared_ptr<ServedCall> stream);
  void Remove(ServedCall* stream);

  size_t open_streams() const;

  struct Counts {
    size_t open = 0;
    size_t overdue = 0;
  };
  Counts Count() const;

  // Visits without the lock held, so streams may end meanwhile.
  template <typename Visit>
  void ForEachOpen(const Visit& visit) const {
    for (std::shared_ptr<ServedCall> stream = NextOpen(nullptr); stream != nullptr;
         stream = NextOpen(stream.get())) {
      visit(*stream);
    }
  }

  // Refuses new streams from now on; open ones may continue for `grace`. A later call can shorten
  // the grace, not extend it.
  void StartDrain(std::chrono::milliseconds grace);

  // Waits until the grace is over or all streams have ended, then ends the rest with UNAVAILABLE,
  // then cancels those that still do not end because their clients read nothing. Takes at most the
  // grace and two seconds.
  void FinishDrain();

 private:
  using Clock = std::chrono::steady_clock;

  // The stream after `stream` in the table; null after the last, the first for null. One at a time,
  // because a list would need memory.
  std::shared_ptr<ServedCall> NextOpen(const ServedCall* stream) const;
  bool WaitUntilEmpty(std::chrono::milliseconds time);
  void WatchTimes();

  const size_t max_streams_;
  const std::chrono::milliseconds stall_timeout_;
  const std::chrono::milliseconds total_time_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const ServedCall*, std::shared_ptr<ServedCall>, std::less<>> streams_;
  const std::shared_ptr<std::atomic<size_t>> slots_ = std::make_shared<std::atomic<size_t>>(0);
  FairPlaces waiting_;
  bool draining_ = false;
  bool closing_ = false;
  Clock::time_point drain_until_;
  std::thread watcher_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_STREAM_REGISTRY_H_
