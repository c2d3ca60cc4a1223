// Counts calls that may outlive their streams.
#ifndef CBT_RPC_RELAY_OPEN_CALLS_H_
#define CBT_RPC_RELAY_OPEN_CALLS_H_

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace cbt::rpc {

// Counts the calls on a channel. A cancelled call ends later in a thread of the transport, and
// needs the channel until then. The last reference to a channel must not be dropped there: the
// transport would wait for its own thread. So the destructor waits for the calls; declare this
// after the channel, so that it is destroyed first. Thread safe.
class OpenCalls {
 public:
  OpenCalls() = default;
  ~OpenCalls() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return open_ == 0; });
  }
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // One call; must be destroyed after all its parts.
  class Hold {
   public:
    explicit Hold(OpenCalls& calls) : calls_(calls) {
      const std::lock_guard lock(calls_.mutex_);
      ++calls_.open_;
    }
    ~Hold() {
      const std::lock_guard lock(calls_.mutex_);
      // Under the lock: the waiting thread destroys the counter.
      if (--calls_.open_ == 0) calls_.none_.notify_all();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    OpenCalls& calls_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  size_t open_ = 0;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_OPEN_CALLS_H_
