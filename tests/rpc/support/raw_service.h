// A gRPC service whose methods are registered by name and exchange raw bytes: a foreign server
// against which our clients are tested.
#ifndef CBT_TESTS_RPC_SUPPORT_RAW_SERVICE_H_
#define CBT_TESTS_RPC_SUPPORT_RAW_SERVICE_H_

#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<grpcpp/impl/service_type.h>)
#include <grpcpp/impl/service_type.h>
#else
#include <grpcpp/impl/codegen/service_type.h>
#endif
#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#endif

namespace cbt::test {

inline grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

inline std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

class RawService : public grpc::Service {
 public:
  using WriteReactor = grpc::ServerWriteReactor<grpc::ByteBuffer>;
  using StreamHandler =
      std::function<WriteReactor*(grpc::CallbackServerContext*, const grpc::ByteBuffer*)>;
  using UnaryHandler =
      std::function<grpc::Status(const std::string& request, std::string& response)>;

 protected:
  // `path` is "/package.Service/Method" and must live as long as the service. Handlers run on
  // gRPC's threads and must not block.
  void AddStream(const char* path, StreamHandler handler) {
    AddMethod(new grpc::internal::RpcServiceMethod(
        path, grpc::internal::RpcMethod::SERVER_STREAMING, nullptr));
    MarkMethodRawCallback(
        methods_++,
        new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
            std::move(handler)));
  }

  void AddUnary(const char* path, UnaryHandler handler) {
    AddMethod(
        new grpc::internal::RpcServiceMethod(path, grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodRawCallback(
        methods_++, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                        [handler = std::move(handler)](grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
                          std::string bytes;
                          grpc::Status status = handler(BytesOf(*request), bytes);
                          *response = BufferOf(bytes);
                          grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
                          reactor->Finish(std::move(status));
                          return reactor;
                        }));
  }

 private:
  int methods_ = 0;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_RAW_SERVICE_H_
