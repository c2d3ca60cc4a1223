// The lifetime of the gRPC library in this process.
#ifndef CBT_RPC_TRANSPORT_GRPC_LIBRARY_H_
#define CBT_RPC_TRANSPORT_GRPC_LIBRARY_H_

#include <grpc/grpc.h>

namespace cbt::rpc {

// Keeps gRPC running from the first call until the process ends. Without it the library shuts down
// whenever its last server or channel goes, joins its threads, and one of them may sit in a poll
// for ten more seconds: a server would take that long to stop, a client to close.
inline void KeepGrpcRunning() {
  static const bool running = (grpc_init(), true);
  (void)running;
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_GRPC_LIBRARY_H_
