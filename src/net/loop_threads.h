// Threads with an event loop each, for a server and for the channels that its calls use.
#ifndef CBT_NET_LOOP_THREADS_H_
#define CBT_NET_LOOP_THREADS_H_

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "net/event_loop.h"
#include "net/memory.h"

namespace cbt::net {

class LoopThreads {
 public:
  // `count` loops, but at least one and at most one per processor. Their threads start with Run().
  // Errors: UNAVAILABLE if the system refuses descriptors, RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<LoopThreads>> Create(size_t count);

  // Tasks that were posted before have run when this returns. Not from one of the threads.
  ~LoopThreads();
  LoopThreads(const LoopThreads&) = delete;
  LoopThreads& operator=(const LoopThreads&) = delete;

  // Starts the threads. Call once. Throws std::system_error; threads that have started go on.
  void Run();

  size_t size() const noexcept { return parts_.size(); }
  EventLoop& loop(size_t number) noexcept { return *parts_[number].loop; }
  // For channels: what they receive does not count as the server's memory.
  ReadChunks& chunks(size_t number) noexcept { return *parts_[number].chunks; }
  // The first ones have a thread.
  size_t running() const noexcept { return threads_.size(); }

 private:
  struct Part {
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<ReadChunks> chunks;
  };

  explicit LoopThreads(std::vector<Part> parts) noexcept;

  std::vector<Part> parts_;
  std::vector<std::thread> threads_;  // has room for one per loop
};

// A static object of it joins the one thread of `Owner`, which has Get() and Join().
template <typename Owner>
struct JoinAtExit {
  // OpenSSL's own exit handlers then run after the thread has ended.
  JoinAtExit() { OPENSSL_init_ssl(0, nullptr); }
  ~JoinAtExit() { Owner::Get().Join(); }
  JoinAtExit(const JoinAtExit&) = delete;
  JoinAtExit& operator=(const JoinAtExit&) = delete;
};

}  // namespace cbt::net

#endif  // CBT_NET_LOOP_THREADS_H_
