#include "rpc/raw_service.h"

#include <utility>

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

class Rejection final : public RawService::WriteReactor {
 public:
  explicit Rejection(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

void RawService::AddStream(const char* path, StreamHandler handler) {
  AddMethod(new RpcServiceMethod(path, RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodRawCallback(
      methods_++,
      new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
          std::move(handler)));
}

void RawService::AddUnary(const char* path, UnaryHandler handler) {
  AddMethod(new RpcServiceMethod(path, RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRawCallback(
      methods_++, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                      [handler = std::move(handler)](grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
                        grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
                        reactor->Finish(handler(*request, response));
                        return reactor;
                      }));
}

void RawService::AddUnaryReactor(const char* path, UnaryReactorHandler handler) {
  AddMethod(new RpcServiceMethod(path, RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRawCallback(
      methods_++, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                      std::move(handler)));
}

void RawService::AddBidi(const char* path, BidiHandler handler) {
  AddMethod(new RpcServiceMethod(path, RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(methods_++,
                        new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                            std::move(handler)));
}

RawService::WriteReactor* RejectStream(const grpc::Status& status) { return new Rejection(status); }

}  // namespace cbt::rpc
