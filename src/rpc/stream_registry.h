// Who is being served: counts streams, ends them when the server drains, cancels those that stall.
#ifndef CBT_RPC_STREAM_REGISTRY_H_
#define CBT_RPC_STREAM_REGISTRY_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::rpc {

class StreamReactor;
class StreamRegistry;

// The right to be one of max_streams. Given back by the destructor.
class StreamSlot {
 public:
  explicit StreamSlot(StreamRegistry& registry) noexcept : registry_(&registry) {}
  ~StreamSlot();
  StreamSlot(StreamSlot&& other) noexcept : registry_(std::exchange(other.registry_, nullptr)) {}
  StreamSlot& operator=(StreamSlot&&) = delete;
  StreamSlot(const StreamSlot&) = delete;
  StreamSlot& operator=(const StreamSlot&) = delete;

 private:
  StreamRegistry* registry_;
};

// The open streams of a server. Thread safe. Must outlive its streams and their slots.
class StreamRegistry {
 public:
  StreamRegistry(size_t max_streams, std::chrono::milliseconds stall_timeout);
  ~StreamRegistry();
  StreamRegistry(const StreamRegistry&) = delete;
  StreamRegistry& operator=(const StreamRegistry&) = delete;

  // A slot is held longer than its stream is open when a provider's call outlasts it, so that
  // clients that come and go can't pile up work. Errors: RESOURCE_EXHAUSTED when max_streams are
  // taken, UNAVAILABLE when draining.
  absl::StatusOr<StreamSlot> TakeSlot();

  // Keeps `stream` alive until Remove().
  // Errors: UNAVAILABLE when draining.
  absl::Status Add(std::shared_ptr<StreamReactor> stream);
  void Remove(StreamReactor* stream);

  size_t open_streams() const;

  // From now on no stream is added; those that are open may go on for `grace`. A later call can
  // shorten an earlier one's grace, not lengthen it.
  void StartDrain(std::chrono::milliseconds grace);

  // Waits for the grace to pass or the streams to end, then ends the rest with UNAVAILABLE, then
  // cancels those that still don't end because their clients take nothing. Bounded by the
  // grace and two seconds.
  void FinishDrain();

 private:
  friend class StreamSlot;
  using Clock = std::chrono::steady_clock;

  void ReleaseSlot();
  std::vector<std::shared_ptr<StreamReactor>> Open() const;
  bool WaitUntilEmpty(std::chrono::milliseconds time);
  void WatchForStalls();

  const size_t max_streams_;
  const std::chrono::milliseconds stall_timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<StreamReactor*, std::shared_ptr<StreamReactor>> streams_;
  size_t slots_ = 0;
  bool draining_ = false;
  bool closing_ = false;
  Clock::time_point drain_until_;
  std::thread watcher_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_STREAM_REGISTRY_H_
