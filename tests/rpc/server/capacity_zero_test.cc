// An empty message has capacity 0: no client may take it for an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cbt/rpc/server.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/sidecar.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace capacity_zero_test {

using absl::StatusCode;
using testing::HasSubstr;

// Our server sends what its provider reports. FIXED_LENGTH is 0 in the first revision, so the whole
// message is empty.
TEST(CapacityZero, AttackSIsRefusedByEveryClient) {
  FunctionProvider provider(
      [](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
        if (call.base.has_value()) return Blocks(CursorOver({}, 0), 4096);
        return Extents(CursorOver({}, 0));
      });
  const TempDir dir;
  const Sidecar access("unix:///none/socket");
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.service.apis = {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession,
                          rpc::Api::kPaged};
  options.service.access = {.authenticator = access.access.get(),
                            .authorizer = access.access.get(),
                            .resolver = access.directories.get()};
  options.service.sessions = access.sessions.get();
  const auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  for (const rpc::Api api : *options.service.apis) {
    for (const bool delta : {false, true}) {
      rpc::ListRequest request = access.Request(api, delta);
      request.address = (*server)->address();
      const absl::Status status = ListWhatComes(request).status;
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << rpc::ApiName(api) << ": " << status;
    }
  }
}

TEST(CapacityZero, AttackSIsNoAnswerOfARelay) {
  for (const std::string& message : {Variable(0, {}), Fixed(0, {}), Variable(0, {{0, 4096}})}) {
    const FakeServer plugin(Script{.messages = {message}});
    const Sidecar sidecar(plugin.address());
    for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession}) {
      const absl::Status status = ListWhatComes(sidecar.Request(api)).status;
      EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
      EXPECT_THAT(status.ToString(), HasSubstr("volume_capacity_bytes"));
    }
    EXPECT_FALSE(ListWhatComes(sidecar.Request(rpc::Api::kPaged)).status.ok());
    // A relay that does not check leaves it to the client.
    const Sidecar blind(plugin.address(), false);
    EXPECT_EQ(ListWhatComes(blind.Request(rpc::Api::kKubernetes)).status.code(),
              StatusCode::kDataLoss);
  }
}

}  // namespace capacity_zero_test
}  // namespace cbt::test
