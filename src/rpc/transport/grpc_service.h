// A service on a gRPC server.
//
// Generated code usually registers methods. The library must not contain any: a plugin links its
// own generated classes of the same messages, and two copies in one program clash. So methods are
// registered by path, and exchange raw bytes.
#ifndef CBT_RPC_TRANSPORT_GRPC_SERVICE_H_
#define CBT_RPC_TRANSPORT_GRPC_SERVICE_H_

#if __has_include(<grpcpp/impl/service_type.h>)
#include <grpcpp/impl/service_type.h>
#else
#include <grpcpp/impl/codegen/service_type.h>
#endif

#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// Exposes the methods of a service. Register it with a grpc::ServerBuilder. Calls with compressed
// messages end with UNIMPLEMENTED: a message that is decompressed before its size is checked could
// have any size, so the server must not decompress any (GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION).
class GrpcService final : public grpc::Service {
 public:
  // `service` must outlive this and the server.
  explicit GrpcService(const cbt::rpc::Service& service);
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_GRPC_SERVICE_H_
