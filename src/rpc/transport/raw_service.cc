#include "rpc/transport/raw_service.h"

#include <new>
#include <utility>

#include "rpc/contract/status.h"

#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#endif
#include <grpcpp/impl/rpc_service_method.h>

namespace cbt::rpc {
namespace {

using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;

template <typename Reactor>
class Rejection final : public Reactor {
 public:
  explicit Rejection(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

// Returns open(), or reject() if memory runs out. gRPC answers UNIMPLEMENTED for a handler that
// throws, and clients would then fall back to another method.
template <typename Open, typename Reject>
auto Guarded(const Open& open, const Reject& reject) -> decltype(open()) {
  try {
    return open();
  } catch (const std::bad_alloc&) {
    return reject(ToGrpcStatus(OutOfMemory()));
  }
}

}  // namespace

void RawService::AddStream(const char* path, StreamHandler handler) {
  AddMethod(new RpcServiceMethod(path, RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodRawCallback(
      methods_++,
      new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
          [handler = std::move(handler)](grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request) {
            return Guarded([&] { return handler(context, request); }, RejectStream);
          }));
}

void RawService::AddUnary(const char* path, UnaryHandler handler) {
  AddUnaryReactor(path, [handler = std::move(handler)](grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
    return EndUnary(*context, handler(*request, response));
  });
}

void RawService::AddUnaryReactor(const char* path, UnaryReactorHandler handler) {
  AddMethod(new RpcServiceMethod(path, RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRawCallback(
      methods_++, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                      [handler = std::move(handler)](grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
                        return Guarded(
                            [&] { return handler(context, request, response); },
                            [&](const grpc::Status& status) { return EndUnary(*context, status); });
                      }));
}

void RawService::AddBidi(const char* path, BidiHandler handler) {
  AddMethod(new RpcServiceMethod(path, RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(methods_++,
                        new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                            [handler = std::move(handler)](grpc::CallbackServerContext* context) {
                              return Guarded([&] { return handler(context); }, RejectBidi);
                            }));
}

RawService::WriteReactor* RejectStream(const grpc::Status& status) {
  return new Rejection<RawService::WriteReactor>(status);
}

RawService::BidiReactor* RejectBidi(const grpc::Status& status) {
  return new Rejection<RawService::BidiReactor>(status);
}

grpc::ServerUnaryReactor* EndUnary(grpc::CallbackServerContext& context, grpc::Status status) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(std::move(status));
  return reactor;
}

}  // namespace cbt::rpc
