// What gRPC makes of handlers that have no memory.
#include "rpc/transport/raw_service.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <string>

#include "rpc/client/upstream_call.h"
#include "support/temp_dir.h"

namespace cbt::rpc {
namespace {

class Forgetful final : public RawService {
 public:
  Forgetful() {
    AddStream("/s/Stream",
              [](grpc::CallbackServerContext*, const grpc::ByteBuffer*) -> WriteReactor* {
                throw std::bad_alloc();
              });
    AddUnary("/s/Unary", [](const grpc::ByteBuffer&, grpc::ByteBuffer*) -> grpc::Status {
      throw std::bad_alloc();
    });
    AddUnaryReactor("/s/Slow",
                    [](grpc::CallbackServerContext*, const grpc::ByteBuffer*,
                       grpc::ByteBuffer*) -> grpc::ServerUnaryReactor* { throw std::bad_alloc(); });
    AddBidi("/s/Bidi",
            [](grpc::CallbackServerContext*) -> BidiReactor* { throw std::bad_alloc(); });
  }
};

// How a call ends.
class End final : public UpstreamHandler {
 public:
  bool OnMessage(grpc::ByteBuffer) override { return true; }
  void OnEnd(const grpc::Status& status) override { code.set_value(status.error_code()); }

  std::promise<grpc::StatusCode> code;
};

// UNIMPLEMENTED would send clients to a lower tier.
TEST(RawServiceTest, HandlersWithoutMemoryAreNotUnimplemented) {
  const test::TempDir dir;
  const std::string address = "unix:" + (dir / "s");
  Forgetful service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  for (const char* path : {"/s/Stream", "/s/Unary", "/s/Slow", "/s/Bidi"}) {
    UpstreamCall call(std::chrono::system_clock::now() + std::chrono::minutes(1));
    End end;
    call.Start(channel, path, "", end);
    EXPECT_EQ(end.code.get_future().get(), grpc::StatusCode::RESOURCE_EXHAUSTED) << path;
  }
  server->Shutdown();
}

}  // namespace
}  // namespace cbt::rpc
