// The part of a served call that cancels it and watches its time.
#ifndef CBT_RPC_SERVER_TIMED_CALL_H_
#define CBT_RPC_SERVER_TIMED_CALL_H_

#include <chrono>
#include <mutex>

#include "rpc/server/call_clock.h"
#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

class TimedCall : public ServedCall {
 public:
  void Abort() final;
  void CheckTimes(std::chrono::milliseconds stall, std::chrono::milliseconds total) final;

 protected:
  // `call` must be valid until Done().
  explicit TimedCall(ServerCall& call) noexcept : call_(call) {}

  // OnDone() has been called: the call is no longer valid.
  void Done();

  // Whether the status of the call is already decided. Called with the lock held.
  virtual bool Ending() const = 0;

  // The client has taken nothing for a while. Called with the lock held, again and again.
  virtual void Compact() noexcept {}

  ServerCall& call_;
  std::mutex mutex_;  // of the derived class too
  CallClock clock_;

 private:
  void Cancel();

  bool done_ = false;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_TIMED_CALL_H_
