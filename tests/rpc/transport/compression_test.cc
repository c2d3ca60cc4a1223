// Servers that compress although the client did not ask for it.
#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/list_all.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace compression_test {

using absl::StatusCode;

constexpr uint64_t kTuples = 1000;

// Sends one message, plain or compressed, then OK.
class Plugin {
 public:
  explicit Plugin(grpc_compression_algorithm algorithm) : service_(algorithm) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("unix:", dir_ / "plugin"),
                             grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~Plugin() { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "unix://" + (dir_ / "plugin"); }
  std::string relay_address() const { return "unix://" + (dir_ / "relay"); }

 private:
  class Reactor final : public RawService::WriteReactor {
   public:
    Reactor() {
      // Enough to be worth compressing; the compressed message is one piece.
      reference::Ranges tuples;
      for (uint64_t i = 0; i < kTuples; ++i) tuples.emplace_back(2 * i * 4096, 4096);
      const grpc::Slice slice(Variable(2 * kTuples * 4096, tuples));
      message_ = grpc::ByteBuffer(&slice, 1);
      StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer message_;
  };

  class Compressor final : public RawService {
   public:
    explicit Compressor(grpc_compression_algorithm algorithm) {
      AddStream(kAllocatedPath,
                [algorithm](grpc::CallbackServerContext* context,
                            const grpc::ByteBuffer*) -> WriteReactor* {
                  context->set_compression_algorithm(algorithm);
                  return new Reactor();
                });
    }
  };

  const TempDir dir_;
  Compressor service_;
  std::unique_ptr<grpc::Server> server_;
};

absl::StatusOr<reference::Ranges> List(const std::string& address) {
  rpc::ListRequest request;
  request.address = address;
  request.snapshot_id = std::string("s");
  return ListAll(request);
}

TEST(Compression, AttackLMessagesOfAServerAreNotUnpacked) {
  for (const auto algorithm : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const Plugin plugin(algorithm);
    rpc::RelayOptions options;
    options.listen = plugin.relay_address();
    options.plugin = plugin.address();
    options.service.apis = {rpc::Api::kCsi};
    const auto relay = rpc::Relay::Start(options);
    ASSERT_OK(relay);
    for (const std::string& address : {plugin.address(), plugin.relay_address()}) {
      const auto listed = List(address);
      if (algorithm == GRPC_COMPRESS_NONE) {
        ASSERT_OK(listed);
        EXPECT_EQ(listed->size(), kTuples);
      } else {
        EXPECT_EQ(listed.status().code(), StatusCode::kUnimplemented) << listed.status();
        // A relay does not forward its plugin's texts.
        if (address == plugin.address()) {
          EXPECT_THAT(listed.status().ToString(),
                      testing::ContainsRegex("disabled|turn compression off"));
        }
      }
    }
  }
}

}  // namespace compression_test
}  // namespace cbt::test
