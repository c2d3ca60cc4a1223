// Plugins that reveal too much, or stop responding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "rpc/contract/completeness.h"
#include "rpc/relay/plugin_errors.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/sidecar.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace relay_plugins_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr rpc::Api kAllApis[] = {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession,
                                 rpc::Api::kPaged};

// Stores the log lines.
class Log final : public rpc::LogSink {
 public:
  bool Wants(rpc::LogLevel) const noexcept override { return true; }
  void Write(rpc::LogLevel, std::string_view event,
             std::span<const rpc::LogField> fields) noexcept override {
    const std::lock_guard lock(mutex_);
    text_ += std::string(event);
    for (const rpc::LogField& field : fields) {
      text_ += " " + std::string(field.key) + "=" + field.value;
    }
    text_ += "\n";
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

TEST(PluginTexts, AttackKE19NothingOfAPluginsTextReachesAClient) {
  for (const bool late : {false, true}) {
    Script script{.messages = {},
                  .status = {grpc::StatusCode::FAILED_PRECONDITION, "pool-7 has no bitmap"}};
    if (late) script.messages.push_back(Variable(1000, {{0, 10}}));
    const FakeServer plugin(script);
    for (const rpc::Api api : kAllApis) {
      Log log;
      const Sidecar sidecar(plugin.address(), true, {}, {.log = &log});
      const absl::Status status = ListWhatComes(sidecar.Request(api)).status;
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(status.ToString(), AllOf(HasSubstr("plugin: "), Not(HasSubstr("pool-7"))));
      // The log has it, under the id that the client got.
      const std::string text(status.message());
      const size_t at = text.find("(error ");
      ASSERT_NE(at, std::string::npos) << text;
      EXPECT_THAT(log.text(), HasSubstr(absl::StrCat("error=", text.substr(at + 7, 16),
                                                     " code=FAILED_PRECONDITION text=pool-7")));
    }
  }
}

TEST(PluginTexts, AttackKE19WhatResemblesASecretIsNotLogged) {
  constexpr std::string_view kSecret = "S3cret-Canary/42";
  Secrets secrets;
  secrets.Set("empty", "");
  secrets.Set("key", kSecret);
  const std::string whole(kSecret);
  const std::string hex = absl::BytesToHexString(whole);
  const std::string texts[] = {
      whole,
      absl::AsciiStrToLower(whole),
      absl::AsciiStrToUpper(whole),
      whole.substr(0, whole.size() - 1),
      whole.substr(1),
      hex,
      absl::AsciiStrToUpper(hex),
      hex.substr(0, 2) + ":" + hex.substr(2),
      absl::Base64Escape(whole),
      absl::WebSafeBase64Escape(whole),
      absl::Base64Escape("u:" + whole),
      absl::Base64Escape("user:" + whole + "\n"),
      absl::Base64Escape("usr:" + whole),
  };
  for (const std::string& text : texts) {
    EXPECT_TRUE(rpc::Resembles("login (" + text + ") failed", secrets)) << text;
    Log log;
    const absl::Status status =
        rpc::PluginErrors(&log).ForClient(absl::InternalError(text), secrets);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.ToString(), Not(HasSubstr(text)));
    EXPECT_THAT(log.text(), AllOf(HasSubstr("text=withheld"), Not(HasSubstr(text))));
  }
  EXPECT_FALSE(rpc::Resembles("the volume is gone", secrets));
  Secrets odd;
  odd.Set("short", "ab");
  odd.Set("signs", "+++");
  EXPECT_TRUE(rpc::Resembles("x AB x", odd));
  EXPECT_TRUE(rpc::Resembles("1+++", odd));
  EXPECT_FALSE(rpc::Resembles("", odd));
}

// Searching for a secret takes time with its length: only a prefix of a long one is searched.
TEST(PluginTexts, AttackKWhatIsTooLongToBeLookedThroughIsHeldBack) {
  std::string secret;
  for (int i = 0; secret.size() < 9000; ++i) absl::StrAppend(&secret, "k", i * 7919);
  Secrets secrets;
  secrets.Set("key", secret);
  const std::string tail = secret.substr(secret.size() - 600);
  for (const std::string& text : {tail, absl::BytesToHexString(tail), absl::Base64Escape(tail)}) {
    EXPECT_TRUE(rpc::Resembles(text, secrets));
    Log log;
    (void)rpc::PluginErrors(&log).ForClient(absl::InternalError(text), secrets);
    EXPECT_THAT(log.text(), AllOf(HasSubstr("text=withheld"), Not(HasSubstr(text))));
  }
  // One so long that its hexadecimal digits are cut, and the longest that is searched whole.
  for (const size_t length : {size_t{2049}, size_t{2048}}) {
    Secrets one;
    one.Set("key", secret.substr(0, length));
    EXPECT_TRUE(rpc::Resembles(absl::BytesToHexString(secret.substr(1000, length - 1000)), one));
    EXPECT_EQ(rpc::Resembles("the volume is gone", one), length > 2048);
  }
  Secrets brief;
  brief.Set("key", "S3cret-Canary/42");
  EXPECT_FALSE(rpc::Resembles(std::string(4096, 'x'), brief));
  EXPECT_TRUE(rpc::Resembles(std::string(4097, 'x'), brief));
}

TEST(PluginTexts, AttackKWithoutALogTheTextIsGone) {
  const absl::Status status =
      rpc::PluginErrors().ForClient(absl::NotFoundError("no pool-7"), Secrets());
  EXPECT_EQ(std::string(status.message()), "plugin: it does not have the snapshot");
  EXPECT_OK(rpc::PluginErrors().ForClient(absl::OkStatus(), Secrets()));
}

// A plugin that sends one message and then the test's trailers.
class TrailingServer {
 public:
  explicit TrailingServer(rpc::Metadata trailing) : service_(std::move(trailing)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + (dir_ / "s"), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~TrailingServer() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "unix://" + (dir_ / "s"); }

 private:
  class Reactor final : public RawService::WriteReactor {
   public:
    Reactor() {
      const grpc::Slice slice(Variable(kMiB, {{0, 4096}}));
      buffer_ = grpc::ByteBuffer(&slice, 1);
      StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer buffer_;
  };
  class Service final : public RawService {
   public:
    explicit Service(rpc::Metadata trailing) {
      AddStream(kAllocatedPath,
                [trailing = std::move(trailing)](grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer*) -> WriteReactor* {
                  for (const auto& [key, value] : trailing) {
                    context->AddTrailingMetadata(key, value);
                  }
                  return new Reactor();
                });
    }
  };

  const TempDir dir_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(PluginTexts, AttackKNothingOfAPluginsTrailersReachesAClient) {
  StreamDigest digest;
  const uint64_t offset = 0;
  const uint64_t length = 4096;
  digest.Add({&offset, 1}, {&length, 1});
  const rpc::Metadata good =
      rpc::ProofMetadata(digest, 0, rpc::StreamHeader{BlockMetadataType::kVariableLength, kMiB});
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char* value : {"xxh3-64:secret-canary", "canary", "xxh3-64:0123456789abcdeF"}) {
      rpc::Metadata trailing = good;
      trailing[i].second = value;
      const TrailingServer plugin(trailing);
      for (const bool check : {true, false}) {
        const Sidecar sidecar(plugin.address(), check);
        for (const rpc::Api api : kAllApis) {
          const absl::Status status = ListWhatComes(sidecar.Request(api)).status;
          EXPECT_FALSE(status.ok()) << trailing[i].first << " " << check;
          EXPECT_THAT(status.ToString(), AllOf(Not(HasSubstr("canary")), Not(HasSubstr("abcdeF"))));
        }
      }
    }
  }
  const TrailingServer plugin(good);
  const Sidecar sidecar(plugin.address(), false);
  EXPECT_EQ(ListWhatComes(sidecar.Request(rpc::Api::kCsi)).completeness,
            rpc::Completeness::kProven);
}

TEST(PluginTexts, AttackSThePathOfThePluginsSocketIsNotForClients) {
  const TempDir dir;
  Log log;
  const Sidecar sidecar("unix://" + (dir / "plugin-socket"), true, {}, {.log = &log});
  for (const rpc::Api api : kAllApis) {
    const absl::Status status = ListWhatComes(sidecar.Request(api)).status;
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(status.ToString(), Not(HasSubstr("socket")));
  }
  EXPECT_THAT(log.text(), HasSubstr("plugin-socket"));
}

// --- plugins that stop responding ----------------------------------------------------------------

constexpr milliseconds kStall{300};

TEST(SilentPlugin, AttackSHoldsNoStreamForLongerThanTheLimit) {
  for (const bool late : {false, true}) {
    Script script{.hang = true};
    if (late) script.messages.push_back(Variable(1000, {{0, 10}}));
    const FakeServer plugin(script);
    const Sidecar sidecar(plugin.address(), true, {}, {}, kStall);
    for (const rpc::Api api : kAllApis) {
      const Stopwatch watch;
      EXPECT_EQ(ListWhatComes(sidecar.Request(api)).status.code(), StatusCode::kDeadlineExceeded)
          << rpc::ApiName(api) << late;
      EXPECT_GE(watch.elapsed(), kStall);
      EXPECT_LT(watch.elapsed(), seconds(10));
    }
    EXPECT_TRUE(Eventually([&] { return sidecar.relay->open_streams() == 0; }));
  }
}

// Here the relay waits for its client.
TEST(SilentPlugin, AttackSAClientThatReadsNothingIsNotThePluginsFault) {
  const auto trace = std::make_shared<CursorTrace>();
  const Service plugin([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(kPiB, 4096, trace));
  });
  const FakeServer silent(Script{.messages = {Variable(1000, {{0, 10}})}, .hang = true});
  const Sidecar sidecar(plugin.server->address(), true, {}, {}, kStall);
  const auto channel = Connect(sidecar.relay->address());
  csi::v1::GetMetadataAllocatedRequest request;
  request.set_snapshot_id("ns/b");
  RawCall call(channel, kAllocatedPath, request.SerializeAsString());
  ASSERT_TRUE(call.Read().has_value());
  // A second stream starts once the relay has stopped reading the first. When it times out, the
  // limit has passed for both.
  int before = -1;
  ASSERT_TRUE(Eventually([&] { return std::exchange(before, trace->next_calls) == before; }));
  const Sidecar other(silent.address(), true, {}, {}, 2 * kStall);
  EXPECT_EQ(ListWhatComes(other.Request(rpc::Api::kCsi)).status.code(),
            StatusCode::kDeadlineExceeded);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(call.Read().has_value());
  EXPECT_EQ(sidecar.relay->open_streams(), 1u);
}

TEST(SilentPlugin, AttackSAServerThatSaysNothingFailsAClientThatHasALimit) {
  const FakeServer server(Script{.messages = {Variable(1000, {{0, 10}})}, .hang = true});
  rpc::ListRequest request;
  request.address = server.address();
  request.snapshot_id = std::string("s");
  request.stall_timeout = kStall;
  const Stopwatch watch;
  const absl::Status status = ListWhatComes(request).status;
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.ToString(), HasSubstr("sent nothing for 300 ms"));
  EXPECT_LT(watch.elapsed(), seconds(10));
}

}  // namespace relay_plugins_test
}  // namespace cbt::test
