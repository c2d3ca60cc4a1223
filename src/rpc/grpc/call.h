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

#include <chrono>
#include <cstddef>

#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// Calls whose request has not arrived. gRPC's server limits neither their number nor their time.
// Destroy it after the handlers that use it have ended.
class HalfRequests {
 public:
  // `calls`: methods share as many places so that none of them can take all. A request that has not
  // arrived after `wait_limit` ends its call with DEADLINE_EXCEEDED. Throws std::system_error if the
  // watching thread can't be started.
  HalfRequests(size_t calls, std::chrono::milliseconds wait_limit);

  StreamRegistry& calls() noexcept { return calls_; }

 private:
  StreamRegistry calls_;
};

// The method that `method` describes, and its handler, which gRPC owns once they are added to a
// grpc::Service (AddMethod(), MarkMethodRawCallback()). `method` and `halves` outlive them and
// their calls. Throw std::bad_alloc.
//
// The handler reads the request first, and opens the call with it then.
// A call with a compressed message ends with UNIMPLEMENTED if the server was built not to
// decompress (GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION).
grpc::internal::RpcServiceMethod* NewMethod(const Service::Method& method);
grpc::internal::MethodHandler* NewHandler(const Service::Method& method, HalfRequests& halves);

}  // namespace cbt::rpc

#endif  // CBT_RPC_GRPC_CALL_H_
