// The loop of a process's channels.
#ifndef CBT_RPC_HTTP2_CLIENT_LOOP_H_
#define CBT_RPC_HTTP2_CLIENT_LOOP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "net/event_loop.h"
#include "net/memory.h"

namespace cbt::rpc::http2 {

// The loop in which channels live. Both members outlive everything in the loop.
struct ClientLoop {
  net::EventLoop* loop;
  net::ReadChunks* chunks;
};

// A loop with its own thread, which runs while there is a reference. All references share one loop.
// It is not destroyed before the process ends, so that a thread may still post a task late. Thread
// safe.
// Errors: UNAVAILABLE if the system refuses a thread or descriptors, RESOURCE_EXHAUSTED without
//         memory.
absl::StatusOr<std::shared_ptr<const ClientLoop>> SharedClientLoop();

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_CLIENT_LOOP_H_
