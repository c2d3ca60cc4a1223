#include "cbt/kube/client.h"
#include "kube/client/call_state.h"

namespace cbt::kube {

void Call::Cancel() const {
  if (const std::shared_ptr<CallState> state = state_.lock()) state->Cancel();
}

}  // namespace cbt::kube
