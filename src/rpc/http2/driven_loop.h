// The loop of one channel, run by the threads that wait for its events.
#ifndef CBT_RPC_HTTP2_DRIVEN_LOOP_H_
#define CBT_RPC_HTTP2_DRIVEN_LOOP_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "net/event_loop.h"
#include "net/memory.h"
#include "rpc/http2/client_loop.h"

namespace cbt::rpc::http2 {

// A message then reaches its consumer without a switch to another thread, which costs more than
// reading it. While no thread waits, a caretaker thread runs the loop a few times a second, so that
// pings are answered, deadlines hold and cancelled calls end. The process has one caretaker for all
// such loops, which stops a while after the last. Thread safe.
class DrivenLoop {
 public:
  // Errors: UNAVAILABLE if the system refuses a thread or descriptors, RESOURCE_EXHAUSTED without
  //         memory.
  static absl::StatusOr<std::shared_ptr<DrivenLoop>> Create();

  // For Create().
  explicit DrivenLoop(std::unique_ptr<net::EventLoop> loop);
  DrivenLoop(const DrivenLoop&) = delete;
  DrivenLoop& operator=(const DrivenLoop&) = delete;

  const ClientLoop& parts() const noexcept { return parts_; }

  // Handles events until `done` returns true, or until `until`. Calls `done` first and after each
  // turn. Do not call in one of the loop's own events.
  void RunUntil(absl::FunctionRef<bool()> done, net::EventLoop::Clock::time_point until) noexcept;

  // Handles ready events, unless another thread does, or did since the last call.
  void RunReady() noexcept;

 private:
  bool RunOnce(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds wait) noexcept;

  std::mutex mutex_;
  std::condition_variable turned_;
  bool running_ = false;  // a thread runs the loop
  bool used_ = false;     // since the last RunReady()
  size_t waiting_ = 0;    // threads waiting for `turned_`
  net::ReadChunks chunks_;
  const std::unique_ptr<net::EventLoop> loop_;
  const ClientLoop parts_;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_DRIVEN_LOOP_H_
