// TLS on both sides: who is admitted, who is refused with which message, certificates that change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/rpc/server.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/files.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace tls_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AnyOf;
using testing::HasSubstr;

// Certificates made with the openssl command.
class Authority {
 public:
  Authority() {
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out "
        "ca.pem -days 2 -subj /CN=ca");
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout other.key -out "
        "other.pem -days 2 -subj /CN=other");
  }

  // NAME.pem and NAME.key for localhost, signed by the authority, valid for two days.
  void Issue(const std::string& name, const std::string& common_name = "localhost") {
    Request(name, common_name);
    Run("x509 -req -in " + name +
        ".csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out " + name + ".pem");
  }

  // Only `openssl ca` accepts dates in the past in all versions.
  void IssueExpired(const std::string& name) {
    Request(name, "localhost");
    std::ofstream(dir / "index");
    std::ofstream(dir / "ca.conf") << "[ca]\ndefault_ca = one\n[one]\ndatabase = index\n"
                                      "new_certs_dir = .\nrand_serial = yes\ndefault_md = sha256\n"
                                      "policy = any\n[any]\ncommonName = supplied\n";
    Run("ca -batch -notext -config ca.conf -cert ca.pem -keyfile ca.key -extfile ext -startdate "
        "20200101000000Z -enddate 20200102000000Z -in " +
        name + ".csr -out " + name + ".pem");
  }

  std::string Path(const std::string& name) const { return dir / name; }
  std::string Text(const std::string& name) const { return ReadFile(Path(name)); }

  TempDir dir;

 private:
  void Request(const std::string& name, const std::string& common_name) {
    std::ofstream(dir / "ext") << "subjectAltName=DNS:localhost,IP:127.0.0.1\n";
    Run("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout " + name +
        ".key -out " + name + ".csr -subj /CN=" + common_name);
  }

  void Run(const std::string& arguments) {
    const std::string command = "cd " + dir.path() + " && openssl " + arguments + " >log 2>&1";
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
  }
};

class Tls : public testing::Test {
 protected:
  Tls()
      : provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          return Extents(CursorOver({{0, 1}}, 4096));
        }) {
    authority.Issue("server");
  }

  void Start(const rpc::TlsOptions& tls) {
    rpc::ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.tls = tls;
    auto started = rpc::Server::Start(provider, options);
    ASSERT_OK(started);
    server = *std::move(started);
  }

  absl::Status List(const rpc::ClientTlsOptions& tls) const {
    rpc::ListRequest request;
    request.address = "127.0.0.1:" + std::to_string(server->port());
    request.snapshot_id = std::string("s");
    request.tls = tls;
    request.timeout = seconds(10);
    request.retry_for = {};
    absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> cursor = rpc::RemoteCursor::Open(request);
    return cursor.ok() ? Drain(**cursor).status() : cursor.status();
  }

  rpc::TlsOptions Files(const std::string& name, bool client_ca = false) const {
    rpc::TlsOptions tls;
    tls.certificate_file = authority.Path(name + ".pem");
    tls.private_key_file = authority.Path(name + ".key");
    if (client_ca) tls.client_ca_file = authority.Path("ca.pem");
    return tls;
  }

  rpc::ClientTlsOptions Trusting(const std::string& ca) const {
    return {.enabled = true, .ca = authority.Text(ca)};
  }

  Authority authority;
  FunctionProvider provider;
  std::unique_ptr<rpc::Server> server;
};

TEST_F(Tls, AClientThatTrustsTheAuthorityIsServed) {
  Start(Files("server"));
  EXPECT_OK(List(Trusting("ca.pem")));
}

TEST_F(Tls, AnotherAuthorityAndPlainTextAreRefused) {
  Start(Files("server"));
  EXPECT_EQ(List(Trusting("other.pem")).code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(List(Trusting("other.pem")).message()), "");
  EXPECT_EQ(List({}).code(), StatusCode::kUnavailable);
  EXPECT_EQ(provider.calls, 0);
}

// Time mends none of these. A server that restarts is waited for (rpc/client/retry_test), and so is
// one that closes connections without a word, as it does when TLS is expected and plain text comes.
TEST_F(Tls, WhatDoesNotFitIsNotWaitedForLong) {
  Start(Files("server", /*client_ca=*/true));
  FunctionProvider plain_provider(
      [](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        return Extents(CursorOver({{0, 1}}, 4096));
      });
  ASSERT_OK_AND_ASSIGN(const auto plain,
                       rpc::Server::Start(plain_provider, {.listen = "127.0.0.1:0"}));
  struct Case {
    const char* name;
    int port;
    rpc::ClientTlsOptions tls;
  };
  const std::array<Case, 3> cases = {{
      {"a server's certificate of another authority", server->port(), Trusting("other.pem")},
      {"no certificate of the client", server->port(), Trusting("ca.pem")},
      {"TLS against plain text", plain->port(), Trusting("ca.pem")},
  }};
  std::vector<std::thread> threads;
  for (const Case& one : cases) {
    threads.emplace_back([&one] {
      rpc::ListRequest request;
      request.address = "127.0.0.1:" + std::to_string(one.port);
      request.snapshot_id = "s";
      request.tls = one.tls;
      request.timeout = seconds(60);
      request.retry_for = seconds(300);
      std::atomic<int> attempts = 0;
      request.on_resume = [&](uint64_t, const absl::Status&) { ++attempts; };
      const auto began = std::chrono::steady_clock::now();
      EXPECT_EQ(rpc::RemoteCursor::Open(request).status().code(), StatusCode::kUnavailable)
          << one.name;
      EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(40)) << one.name;
      EXPECT_GE(attempts, 2) << one.name;  // the certificate may just be replaced
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(provider.calls, 0);
}

TEST_F(Tls, AnExpiredCertificateIsRefused) {
  authority.IssueExpired("expired");
  Start(Files("expired"));
  EXPECT_EQ(List(Trusting("ca.pem")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(provider.calls, 0);
}

TEST_F(Tls, ClientsNeedACertificateWhereAnAuthorityForThemIsNamed) {
  authority.Issue("client");
  Start(Files("server", true));
  EXPECT_EQ(List(Trusting("ca.pem")).code(), StatusCode::kUnavailable);
  rpc::ClientTlsOptions tls = Trusting("ca.pem");
  tls.certificate = authority.Text("client.pem");
  tls.private_key = authority.Text("client.key");
  EXPECT_OK(List(tls));
  tls.certificate = authority.Text("other.pem");
  tls.private_key = authority.Text("other.key");
  EXPECT_EQ(List(tls).code(), StatusCode::kUnavailable);
}

// A certificate of a new authority: clients that only trust the new one are admitted.
TEST_F(Tls, CertificatesAreReadAgainWhenTheirFilesChange) {
  Start(Files("server"));
  ASSERT_OK(List(Trusting("ca.pem")));
  Authority next;
  next.Issue("server");
  std::filesystem::copy_file(next.Path("server.key"), authority.Path("server.key"),
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(next.Path("server.pem"), authority.Path("server.pem"),
                             std::filesystem::copy_options::overwrite_existing);
  const rpc::ClientTlsOptions trusting_next{.enabled = true, .ca = next.Text("ca.pem")};
  EXPECT_TRUE(Eventually([&] { return List(trusting_next).ok(); }, seconds(20)));
  EXPECT_EQ(List(Trusting("ca.pem")).code(), StatusCode::kUnavailable);
}

// Servers that identify their clients by certificates, and long streams.
class ClientCa : public Tls {
 protected:
  ClientCa()
      : endless([](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
          return Extents(call.target == "endless" ? AlternatingCursor(uint64_t{1} << 46, 512)
                                                  : CursorOver({{0, 1}}, 4096));
        }) {
    authority.Issue("client");
    Replace("ca.pem");
  }

  // Makes this file the authority for clients from now on.
  void Replace(const std::string& name) {
    std::filesystem::copy_file(authority.Path(name), authority.Path("beside"));
    std::filesystem::rename(authority.Path("beside"), authority.Path("clients.pem"));
  }

  void StartEndless(milliseconds max_age = milliseconds(0)) {
    rpc::ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.tls = Files("server");
    options.tls.client_ca_file = authority.Path("clients.pem");
    options.connection.max_age = max_age;
    options.service.telemetry.observer = &events;
    auto started = rpc::Server::Start(endless, options);
    ASSERT_OK(started);
    server = *std::move(started);
  }

  rpc::ClientTlsOptions With(const std::string& name) const {
    rpc::ClientTlsOptions tls = Trusting("ca.pem");
    tls.certificate = authority.Text(name + ".pem");
    tls.private_key = authority.Text(name + ".key");
    return tls;
  }

  // A stream that has begun.
  std::unique_ptr<RawCall> Open(const std::string& name) const {
    const rpc::ClientTlsOptions tls = With(name);
    auto call = std::make_unique<RawCall>(
        Connect("127.0.0.1:" + std::to_string(server->port()),
                grpc::SslCredentials({tls.ca, tls.private_key, tls.certificate})),
        kAllocatedPath, Ask{.snapshot = "endless"}.bytes(), seconds(60));
    EXPECT_TRUE(call->Read().has_value());
    return call;
  }

  struct Events final : rpc::StreamObserver {
    void OnOpen(const rpc::StreamKind&) noexcept override {}
    void OnClose(const rpc::StreamReport&) noexcept override {}
    void OnEvent(rpc::ServerEvent event) noexcept override {
      ++counts.at(static_cast<size_t>(event));
    }
    int Of(rpc::ServerEvent event) const { return counts.at(static_cast<size_t>(event)); }
    std::array<std::atomic<int>, rpc::kServerEvents> counts = {};
  };

  FunctionProvider endless;
  Events events;
};

TEST_F(ClientCa, AttackSWhoIsKnownByTheOldAuthorityIsSentAway) {
  StartEndless();
  const auto call = Open("client");
  Replace("other.pem");
  EXPECT_EQ(ReadAll(*call).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(List(With("client")).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Eventually([&] { return List(With("other")).ok(); }, seconds(20)));
  EXPECT_EQ(List(With("client")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(events.Of(rpc::ServerEvent::kClientCaChanged), 1);
}

// As with a missing token file.
TEST_F(ClientCa, AttackSNoClientIsLetInWhileTheFileIsGone) {
  StartEndless();
  const auto call = Open("client");
  std::filesystem::remove(authority.Path("clients.pem"));
  EXPECT_EQ(ReadAll(*call).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(List(With("client")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(events.Of(rpc::ServerEvent::kClientCaUnusable), 1);
  EXPECT_GT(events.Of(rpc::ServerEvent::kHandshakeRefused), 0);
  Replace("ca.pem");
  EXPECT_TRUE(Eventually([&] { return List(With("client")).ok(); }, seconds(20)));
}

// Secret directories are rewritten as a whole.
TEST_F(ClientCa, TheSameAuthorityAgainCutsNoStream) {
  StartEndless();
  const auto call = Open("client");
  Replace("ca.pem");
  EXPECT_OK(List(With("client")));
  EXPECT_TRUE(call->Read().has_value());
  EXPECT_EQ(events.Of(rpc::ServerEvent::kClientCaChanged), 0);
}

TEST_F(ClientCa, AttackSConnectionsHaveAnAge) {
  StartEndless(milliseconds(300));
  const auto call = Open("client");
  EXPECT_EQ(ReadAll(*call).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_OK(List(With("client")));
}

TEST_F(Tls, MaterialThatCantBeUsedIsNamed) {
  const TempDir dir;
  const auto start = [&](const rpc::TlsOptions& tls) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    options.tls = tls;
    return rpc::Server::Start(provider, options).status();
  };
  rpc::TlsOptions mixed = Files("server");
  mixed.private_key_file = authority.Path("other.key");
  EXPECT_EQ(start(mixed).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(start(mixed).ToString(), HasSubstr("does not match the certificate"));
  rpc::TlsOptions missing = Files("server");
  missing.certificate_file = authority.Path("missing.pem");
  EXPECT_EQ(start(missing).code(), StatusCode::kNotFound);
  rpc::TlsOptions half = Files("server");
  half.private_key_file.clear();
  EXPECT_EQ(start(half).code(), StatusCode::kInvalidArgument);
  // Two of the three without the first must not mean plain text.
  rpc::TlsOptions key;
  key.private_key_file = authority.Path("server.key");
  EXPECT_EQ(start(key).code(), StatusCode::kInvalidArgument);
  rpc::TlsOptions ca;
  ca.client_ca_file = authority.Path("ca.pem");
  EXPECT_EQ(start(ca).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(start(ca).ToString(), HasSubstr("a client CA also needs a certificate and its key"));
  rpc::TlsOptions both = Files("server");
  both.certificate = authority.Text("server.pem");
  EXPECT_EQ(start(both).code(), StatusCode::kInvalidArgument);
  rpc::TlsOptions no_ca = Files("server");
  no_ca.client_ca_file = authority.Path("server.key");
  EXPECT_THAT(start(no_ca).ToString(), HasSubstr("client CA"));
  // An empty file would admit every client.
  dir.Write("empty.pem", "");
  no_ca.client_ca_file = dir / "empty.pem";
  EXPECT_EQ(start(no_ca).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(start(no_ca).ToString(), HasSubstr("client CA"));
}

}  // namespace tls_test
}  // namespace cbt::test
