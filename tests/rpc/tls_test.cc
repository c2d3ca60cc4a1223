// TLS on both sides: who is let in, who is refused and in what words, certificates that change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "cbt/rpc/client.h"
#include "cbt/rpc/server.h"
#include "rpc/support/fixture.h"

namespace cbt::test {
namespace {

using absl::StatusCode;
using std::chrono::seconds;
using testing::AnyOf;
using testing::HasSubstr;

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Certificates made with the openssl command.
class Authority {
 public:
  Authority() {
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out "
        "ca.pem -days 2 -subj /CN=ca");
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout other.key -out "
        "other.pem -days 2 -subj /CN=other");
  }

  // NAME.pem and NAME.key for localhost, signed by the authority, for two days.
  void Issue(const std::string& name, const std::string& common_name = "localhost") {
    Request(name, common_name);
    Run("x509 -req -in " + name +
        ".csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out " + name + ".pem");
  }

  // Of a day of the past: only `openssl ca` takes that in all versions.
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
  std::string Text(const std::string& name) const { return FileText(Path(name)); }

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
    ASSERT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }

  absl::Status List(const rpc::ClientTlsOptions& tls) const {
    rpc::ListRequest request;
    request.address = "127.0.0.1:" + std::to_string(server->port());
    request.snapshot_id = std::string("s");
    request.tls = tls;
    request.timeout = seconds(10);
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
  EXPECT_TRUE(List(Trusting("ca.pem")).ok()) << List(Trusting("ca.pem"));
}

TEST_F(Tls, AnotherAuthorityAndPlainTextAreRefused) {
  Start(Files("server"));
  EXPECT_EQ(List(Trusting("other.pem")).code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(List(Trusting("other.pem")).message()), "");
  EXPECT_EQ(List({}).code(), StatusCode::kUnavailable);
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
  EXPECT_TRUE(List(tls).ok()) << List(tls);
  tls.certificate = authority.Text("other.pem");
  tls.private_key = authority.Text("other.key");
  EXPECT_EQ(List(tls).code(), StatusCode::kUnavailable);
}

// A new certificate of another authority: clients that trust the new one alone are let in.
TEST_F(Tls, CertificatesAreReadAgainWhenTheirFilesChange) {
  Start(Files("server"));
  ASSERT_TRUE(List(Trusting("ca.pem")).ok());
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
  EXPECT_THAT(start(mixed).ToString(), HasSubstr("does not belong to the certificate"));
  rpc::TlsOptions missing = Files("server");
  missing.certificate_file = authority.Path("missing.pem");
  EXPECT_EQ(start(missing).code(), StatusCode::kNotFound);
  rpc::TlsOptions half = Files("server");
  half.private_key_file.clear();
  EXPECT_EQ(start(half).code(), StatusCode::kInvalidArgument);
  // What is left of the three without the first is not plain text.
  rpc::TlsOptions key;
  key.private_key_file = authority.Path("server.key");
  EXPECT_EQ(start(key).code(), StatusCode::kInvalidArgument);
  rpc::TlsOptions ca;
  ca.client_ca_file = authority.Path("ca.pem");
  EXPECT_EQ(start(ca).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(start(ca).ToString(), HasSubstr("a certificate and its key beside the client CA"));
  rpc::TlsOptions both = Files("server");
  both.certificate = authority.Text("server.pem");
  EXPECT_EQ(start(both).code(), StatusCode::kInvalidArgument);
  rpc::TlsOptions no_ca = Files("server");
  no_ca.client_ca_file = authority.Path("server.key");
  EXPECT_THAT(start(no_ca).ToString(), HasSubstr("client CA"));
  // An empty one would let in every client.
  dir.Write("empty.pem", "");
  no_ca.client_ca_file = dir / "empty.pem";
  EXPECT_EQ(start(no_ca).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(start(no_ca).ToString(), HasSubstr("client CA"));
}

}  // namespace
}  // namespace cbt::test
