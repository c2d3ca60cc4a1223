// Calls that outlive the streams they were made for.
#ifndef CBT_RPC_RELAY_OPEN_CALLS_H_
#define CBT_RPC_RELAY_OPEN_CALLS_H_

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace cbt::rpc {

// Counts the calls on a channel. A call that was cancelled ends in a thread of gRPC's, some time
// after whoever cancelled it has forgotten it, and holds the channel until then. gRPC must not lose
// the last reference to a channel there: it would wait for its own thread. So the destructor waits
// for the calls; who declares it behind the channel destroys it before. Thread safe.
class OpenCalls {
 public:
  OpenCalls() = default;
  ~OpenCalls() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return open_ == 0; });
  }
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  // One call; to be destroyed after everything of it.
  class Hold {
   public:
    explicit Hold(OpenCalls& calls) : calls_(calls) {
      const std::lock_guard lock(calls_.mutex_);
      ++calls_.open_;
    }
    ~Hold() {
      const std::lock_guard lock(calls_.mutex_);
      // Under the lock: whoever waits destroys the counter.
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
