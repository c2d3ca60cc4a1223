// Counts and logs events of a server that are not part of a stream.
#ifndef CBT_RPC_CONTRACT_SERVER_EVENT_H_
#define CBT_RPC_CONTRACT_SERVER_EVENT_H_

#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

// Counts the event, and logs it: as a warning, unless it is an end that the options ask for.
void Report(const Telemetry& telemetry, ServerEvent event) noexcept;

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_SERVER_EVENT_H_
