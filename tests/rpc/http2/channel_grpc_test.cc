// Our channels against gRPC's own server: sending, receiving, TLS, restarts.
#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rpc/http2/channel.h"
#include "tests/net/certificates.h"
#include "tests/rpc/http2/collector.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::rpc::http2 {
namespace channel_grpc_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Collector;
using testing::HasSubstr;

// Echoes each request: "/x/COUNT" returns COUNT copies, then OK; a negative COUNT is a status, and
// "/x/hang" never ends.
class Echo final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    {
      const std::lock_guard lock(mutex_);
      paths_.push_back(context->method());
      metadata_.clear();
      for (const auto& [key, value] : context->client_metadata()) {
        metadata_.emplace_back(std::string(key.data(), key.size()) + '=' +
                               std::string(value.data(), value.size()));
      }
      left_ = context->deadline() - std::chrono::system_clock::now();
    }
    return new Reactor(*context);
  }

  std::vector<std::string> metadata() const {
    const std::lock_guard lock(mutex_);
    return metadata_;
  }
  std::chrono::system_clock::duration left() const {
    const std::lock_guard lock(mutex_);
    return left_;
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(grpc::GenericCallbackServerContext& context) : context_(context) {
      context.AddInitialMetadata("first", "1");
      context.AddInitialMetadata("bytes-bin", std::string("\0\1\2\xff", 4));
      context.AddTrailingMetadata("last", "2");
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no request"));
      const std::string method = context_.method();
      if (method == "/x/hang") return;
      left_ = std::stoi(method.substr(3));
      Go();
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return End(grpc::Status::CANCELLED);
      Go();
    }
    void OnCancel() override {
      if (context_.method() == "/x/hang") End(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    // Cancellation and a failed read may coincide.
    void End(const grpc::Status& status) {
      if (!ended_.exchange(true)) Finish(status);
    }

    void Go() {
      if (left_ < 0)
        return End(grpc::Status(static_cast<grpc::StatusCode>(-left_), "as asked: 100%\n"));
      if (left_-- == 0) return End(grpc::Status::OK);
      StartWrite(&request_);
    }
    grpc::GenericCallbackServerContext& context_;
    grpc::ByteBuffer request_;
    int left_ = 0;
    std::atomic<bool> ended_ = false;
  };

  mutable std::mutex mutex_;
  std::vector<std::string> paths_;
  std::vector<std::string> metadata_;
  std::chrono::system_clock::duration left_{0};
};

class ChannelGrpc : public testing::Test {
 protected:
  // Otherwise gRPC shuts down with each server, which may take ten seconds.
  static void SetUpTestSuite() { grpc_init(); }
  static void TearDownTestSuite() { grpc_shutdown(); }

  void Start(const std::string& address,
             const std::shared_ptr<grpc::ServerCredentials>& credentials =
                 grpc::InsecureServerCredentials()) {
    // A service belongs to one server.
    echo = std::make_unique<Echo>();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, credentials, &port);
    builder.RegisterCallbackGenericService(echo.get());
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server = builder.BuildAndStart();
    ASSERT_NE(server, nullptr);
  }
  void Stop() {
    if (server == nullptr) return;
    server->Shutdown(std::chrono::system_clock::now());
    server->Wait();
    server = nullptr;
  }
  ~ChannelGrpc() override { Stop(); }

  std::shared_ptr<Channel> To(const std::string& address, const ClientTlsOptions& tls = {}) const {
    return test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress(address)), tls));
  }

  static absl::Status Ask(Channel& channel, const std::string& path, const std::string& request,
                          size_t expected, size_t stop_after = 0) {
    Collector collector(stop_after);
    const auto call = channel.NewCall(std::chrono::system_clock::now() + seconds(30));
    call->Start(path, request, collector);
    for (size_t i = 1; stop_after != 0 && collector.AwaitMessages(i * stop_after); ++i) {
      call->ReadOn();
    }
    const absl::Status status = collector.Await();
    const std::vector<std::string> messages = collector.messages();
    EXPECT_EQ(messages.size(), expected);
    for (const std::string& message : messages) EXPECT_EQ(message, request);
    if (status.ok()) {
      EXPECT_EQ(call->Initial("first"), "1");
      EXPECT_EQ(call->Initial("bytes-bin"), std::string_view("\0\1\2\xff", 4));
      EXPECT_EQ(call->Trailing("last"), "2");
    }
    return status;
  }

  const test::TempDir dir;
  std::unique_ptr<Echo> echo;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

TEST_F(ChannelGrpc, CallsOfAllSizes) {
  Start("unix:" + (dir / "s"));
  const auto channel = To("unix:" + (dir / "s"));
  ASSERT_OK(channel->Connect(std::chrono::system_clock::now() + seconds(20)));
  for (const int size : {0, 1, 4, 5, 16384, 65535, 65536, 1 << 20, 4 << 20}) {
    EXPECT_OK(Ask(*channel, "/x/3", std::string(static_cast<size_t>(size), 'x'), 3)) << size;
    EXPECT_OK(Ask(*channel, "/x/3", std::string(static_cast<size_t>(size), 'y'), 3, 1)) << size;
  }
  EXPECT_OK(Ask(*channel, "/x/0", "", 0));
  EXPECT_OK(Ask(*channel, "/x/2000", "many", 2000));
  EXPECT_OK(Ask(*channel, "/x/200", std::string(100'000, 'z'), 200, 7));
}

TEST_F(ChannelGrpc, WhatTheServerSeesOfACall) {
  Start("127.0.0.1:0");
  const auto channel = To("127.0.0.1:" + std::to_string(port));
  EXPECT_OK(Ask(*channel, "/x/1", "", 1));
  EXPECT_THAT(echo->metadata(), testing::Contains(HasSubstr("user-agent=grpc-c++-cbt/")));
  EXPECT_GT(echo->left(), seconds(20));
  EXPECT_LE(echo->left(), seconds(31));
}

TEST_F(ChannelGrpc, StatusesAreThoseOfTheServer) {
  Start("127.0.0.1:0");
  const auto channel = To("127.0.0.1:" + std::to_string(port));
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status = Ask(*channel, "/x/-" + std::to_string(code), "", 0);
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_EQ(status.message(), "as asked: 100%\n");
  }
}

TEST_F(ChannelGrpc, CancelsAndDeadlinesReachTheServer) {
  Start("unix:" + (dir / "s"));
  const auto channel = To("unix:" + (dir / "s"));
  for (int i = 0; i < 20; ++i) {
    Collector collector;
    const auto call = channel->NewCall(
        i % 2 == 0 ? Deadline() : Deadline(std::chrono::system_clock::now() + milliseconds(30)));
    call->Start("/x/hang", "", collector);
    std::this_thread::sleep_for(milliseconds(5));
    if (i % 2 == 0) call->Cancel();
    EXPECT_EQ(collector.Await().code(),
              i % 2 == 0 ? StatusCode::kCancelled : StatusCode::kDeadlineExceeded);
  }
  EXPECT_OK(Ask(*channel, "/x/1", "", 1));
}

TEST_F(ChannelGrpc, ManyCallsShareAConnection) {
  Start("unix:" + (dir / "s"));
  const auto channel = To("unix:" + (dir / "s"));
  std::vector<std::unique_ptr<Collector>> collectors;
  std::vector<std::unique_ptr<ClientCall>> calls;
  for (int i = 0; i < 90; ++i) {
    // Every third call is never read further; it must not block the others.
    collectors.push_back(std::make_unique<Collector>(i % 3 == 0 ? 1 : 0));
    calls.push_back(channel->NewCall({}));
    calls.back()->Start("/x/40", std::string(20'000, 'a'), *collectors.back());
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i % 3 == 0) continue;
    EXPECT_OK(collectors[i]->Await());
    EXPECT_EQ(collectors[i]->messages().size(), 40U);
  }
  for (size_t i = 0; i < calls.size(); i += 3) {
    EXPECT_FALSE(collectors[i]->ended());
    calls[i]->Cancel();
    EXPECT_EQ(collectors[i]->Await().code(), StatusCode::kCancelled);
    EXPECT_EQ(collectors[i]->messages().size(), 1U);
  }
}

TEST_F(ChannelGrpc, AServerThatComesBackIsUsedAgain) {
  const auto channel = To("unix:" + (dir / "s"));
  for (int i = 0; i < 3; ++i) {
    Start("unix:" + (dir / "s"));
    ASSERT_OK(channel->Connect(std::chrono::system_clock::now() + seconds(20)));
    EXPECT_OK(Ask(*channel, "/x/2", "again", 2));
    Collector open;
    const auto call = channel->NewCall({});
    call->Start("/x/hang", "", open);
    std::this_thread::sleep_for(milliseconds(10));
    Stop();
    EXPECT_FALSE(open.Await().ok());
  }
}

class ChannelTls : public ChannelGrpc {
 protected:
  void StartTls(const test::PemIdentity& identity, const std::string& client_ca = "") {
    grpc::SslServerCredentialsOptions options(
        client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_key_cert_pairs.push_back({identity.key, identity.certificate});
    options.pem_root_certs = client_ca;
    Start("127.0.0.1:0", grpc::SslServerCredentials(options));
  }

  absl::Status AskTls(const ClientTlsOptions& tls, const std::string& host = "127.0.0.1") const {
    const auto channel = To(host + ":" + std::to_string(port), tls);
    Collector collector;
    const auto call = channel->NewCall(std::chrono::system_clock::now() + seconds(30));
    call->Start("/x/3", std::string(100'000, 'x'), collector);
    const absl::Status status = collector.Await();
    EXPECT_EQ(collector.messages().size(), status.ok() ? 3U : 0U);
    return status;
  }

  void Refused(const absl::Status& status, const std::string& text) const {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(port)));
  }

  const test::TestAuthority authority;
  const test::TestAuthority other{"other"};
};

TEST_F(ChannelTls, TheServerIsKnownByItsCertificate) {
  StartTls(authority.Issue());
  EXPECT_OK(AskTls({.enabled = true, .ca = authority.pem()}));
  EXPECT_OK(AskTls({.enabled = true, .ca = authority.pem()}, "localhost"));
  Refused(AskTls({.enabled = true, .ca = other.pem()}), "certificate");
  Refused(AskTls({}), "can't connect");
}

TEST_F(ChannelTls, OtherHostsAndOldCertificatesAreRefused) {
  StartTls(authority.Issue({.alternatives = "DNS:elsewhere"}));
  Refused(AskTls({.enabled = true, .ca = authority.pem()}), "mismatch");
  Refused(AskTls({.enabled = true, .ca = authority.pem()}, "localhost"), "mismatch");
  Stop();
  StartTls(authority.Issue({.ends = -60}));
  Refused(AskTls({.enabled = true, .ca = authority.pem()}), "expired");
}

TEST_F(ChannelTls, ClientsShowTheirCertificate) {
  StartTls(authority.Issue(), authority.pem());
  const test::PemIdentity known = authority.Issue();
  const test::PemIdentity foreign = other.Issue();
  EXPECT_OK(AskTls({.enabled = true,
                    .ca = authority.pem(),
                    .certificate = known.certificate,
                    .private_key = known.key}));
  Refused(AskTls({.enabled = true, .ca = authority.pem()}), "");
  Refused(AskTls({.enabled = true,
                  .ca = authority.pem(),
                  .certificate = foreign.certificate,
                  .private_key = foreign.key}),
          "");
}

TEST_F(ChannelTls, PlainServersAreRefused) {
  Start("127.0.0.1:0");
  Refused(AskTls({.enabled = true, .ca = authority.pem()}), "");
}

TEST_F(ChannelTls, MaterialThatCantBeUsedIsNamed) {
  const auto channel =
      MakeChannel(test::ValueOf(net::ParseAddress("localhost:1")), {.enabled = true, .ca = "none"});
  EXPECT_EQ(channel.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace channel_grpc_test
}  // namespace cbt::rpc::http2
