// The part of a served call that cancels it and watches its time.
#ifndef CBT_RPC_OUTBOUND_TIMED_CALL_H_
#define CBT_RPC_OUTBOUND_TIMED_CALL_H_

#include <grpcpp/server_context.h>

#include <chrono>
#include <mutex>

#include "rpc/outbound/call_clock.h"
#include "rpc/outbound/open_streams.h"

namespace cbt::rpc {

class TimedCall : public ServedCall {
 public:
  void Abort() final;
  void CheckTimes(std::chrono::milliseconds stall, std::chrono::milliseconds total) final;

 protected:
  // `context` must be valid until Done().
  explicit TimedCall(grpc::CallbackServerContext& context) noexcept : context_(&context) {}

  // gRPC's OnDone() has been called: the context is no longer valid.
  void Done();

  // Whether the status of the call is already decided. Called with the lock held.
  virtual bool Ending() const = 0;

  std::mutex mutex_;                      // of the derived class too
  grpc::CallbackServerContext* context_;  // null after Done()
  CallClock clock_;

 private:
  void Cancel();
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_OUTBOUND_TIMED_CALL_H_
