// Calls of a gRPC server for the services of the library.
//
// Generated code usually registers methods. The library must not contain any: a plugin links its
// own generated classes of the same messages, and two copies in one program clash. So methods are
// registered by path, and exchange raw bytes.
#ifndef CBT_RPC_GRPC_CALL_H_
#define CBT_RPC_GRPC_CALL_H_

#if __has_include(<grpcpp/impl/service_type.h>)
#include <grpcpp/impl/service_type.h>
#else
#include <grpcpp/impl/codegen/service_type.h>
#endif

#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// The method that `method` describes, and its handler, which gRPC owns once they are added to a
// grpc::Service (AddMethod(), MarkMethodRawCallback()). `method` outlives them. Throw
// std::bad_alloc.
//
// A call with a compressed message ends with UNIMPLEMENTED if the server was built not to
// decompress (GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION).
grpc::internal::RpcServiceMethod* NewMethod(const Service::Method& method);
grpc::internal::MethodHandler* NewHandler(const Service::Method& method);

}  // namespace cbt::rpc

#endif  // CBT_RPC_GRPC_CALL_H_
