// The lifetime of the gRPC library in this process.
#ifndef CBT_RPC_TRANSPORT_GRPC_LIBRARY_H_
#define CBT_RPC_TRANSPORT_GRPC_LIBRARY_H_

#include <grpc/grpc.h>

namespace cbt::rpc {

// Keeps gRPC running from the first call until the process ends. Otherwise the library shuts down
// with its last server or channel and joins its threads, one of which may be in a poll for ten more
// seconds: stopping a server or closing a client would take that long.
inline void KeepGrpcRunning() {
  static const bool running = (grpc_init(), true);
  (void)running;
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_GRPC_LIBRARY_H_
