// A gRPC service whose methods are registered by name and exchange raw bytes.
//
// Generated code usually registers methods. The library must not contain any: a plugin links its
// own generated classes of the same messages, and two copies in one program clash.
#ifndef CBT_RPC_TRANSPORT_RAW_SERVICE_H_
#define CBT_RPC_TRANSPORT_RAW_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <string>
#include <vector>

#if __has_include(<grpcpp/impl/service_type.h>)
#include <grpcpp/impl/service_type.h>
#else
#include <grpcpp/impl/codegen/service_type.h>
#endif

namespace cbt::rpc {

class RawService : public grpc::Service {
 public:
  using WriteReactor = grpc::ServerWriteReactor<grpc::ByteBuffer>;
  using StreamHandler =
      std::function<WriteReactor*(grpc::CallbackServerContext*, const grpc::ByteBuffer*)>;
  using BidiReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  using UnaryHandler =
      std::function<grpc::Status(const grpc::ByteBuffer& request, grpc::ByteBuffer* response)>;

 protected:
  // `path` is "/package.Service/Method" and must live as long as the service. Handlers run on
  // gRPC's threads and must not block. If a handler throws std::bad_alloc, before it has started
  // anything, the call fails with RESOURCE_EXHAUSTED.
  void AddStream(const char* path, StreamHandler handler);
  void AddUnary(const char* path, UnaryHandler handler);
  // As above for answers that take time: the reactor finishes later.
  using UnaryReactorHandler = std::function<grpc::ServerUnaryReactor*(
      grpc::CallbackServerContext*, const grpc::ByteBuffer*, grpc::ByteBuffer*)>;
  void AddUnaryReactor(const char* path, UnaryReactorHandler handler);
  using BidiHandler = std::function<BidiReactor*(grpc::CallbackServerContext*)>;
  void AddBidi(const char* path, BidiHandler handler);

 private:
  int methods_ = 0;
};

// Reactors that end a call with `status` and delete themselves.
RawService::WriteReactor* RejectStream(const grpc::Status& status);
RawService::BidiReactor* RejectBidi(const grpc::Status& status);

// Ends a call with `status` through the context's default reactor, which can be used once. Does not
// allocate.
grpc::ServerUnaryReactor* EndUnary(grpc::CallbackServerContext& context, grpc::Status status);

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_RAW_SERVICE_H_
