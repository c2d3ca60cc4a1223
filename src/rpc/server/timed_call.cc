#include "rpc/server/timed_call.h"

#include "rpc/contract/status.h"

namespace cbt::rpc {
namespace {

// A client that only reads slowly takes something before.
constexpr std::chrono::milliseconds kRestAfter{500};

}  // namespace

void TimedCall::Done() {
  const std::lock_guard lock(mutex_);
  done_ = true;
}

// Requires the lock.
void TimedCall::Cancel() {
  NoteCancelled();
  if (done_) return;
  reason() == EndReason::kDrained ? call_.CancelForDrain() : call_.Cancel();
}

void TimedCall::Abort() {
  const std::lock_guard lock(mutex_);
  Cancel();
}

void TimedCall::CheckTimes(std::chrono::milliseconds stall, std::chrono::milliseconds total) {
  {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    switch (clock_.Judge(stall, total, Ending())) {
      case CallClock::Verdict::kInTime:
        if (clock_.Waits(kRestAfter)) Compact();
        return;
      case CallClock::Verdict::kStalled:
        NoteReason(EndReason::kStalled);
        return Cancel();
      case CallClock::Verdict::kTimeLimit:
        NoteReason(EndReason::kTimeLimit);
        break;
    }
  }
  End(MakeStatusNoThrow(absl::StatusCode::kDeadlineExceeded,
                        "the call took longer than the server allows"));
}

}  // namespace cbt::rpc
