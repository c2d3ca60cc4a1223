// A request under way, and how its end is reported. Part of cbt::kube.
#ifndef CBT_KUBE_CALL_H_
#define CBT_KUBE_CALL_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/version.h"

namespace cbt::kube {

// Called exactly once for each call, on the client's event thread: with the result, or with the
// error. Never from inside the function that started the call, but another thread may get
// it before that function has returned. It must not block: every other call of the client waits for
// it. What it throws is dropped. Calls may be started and cancelled in it.
template <typename Result>
using Done = std::function<void(absl::StatusOr<Result>)>;
using DoneStatus = std::function<void(absl::Status)>;

// Refers to a call. Copies refer to the same one; dropping them does not cancel it. May outlive the
// client. Thread safe.
class Call {
 public:
  Call() = default;

  // The call ends with CANCELLED soon, unless it has ended or its result is on its way to `done`. A
  // request that the server has already got may still take effect.
  void Cancel() const;

 private:
  friend class CallState;
  explicit Call(std::weak_ptr<class CallState> state) : state_(std::move(state)) {}

  std::weak_ptr<class CallState> state_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CALL_H_
