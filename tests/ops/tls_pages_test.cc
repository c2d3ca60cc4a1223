// Pages over TLS, and until when a certificate is valid.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "net/pem.h"
#include "ops/certificate_end.h"
#include "ops/http_page.h"
#include "ops/metric_set.h"
#include "tests/net/certificates.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/files.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

OwnedDescriptor ConnectTo(int port) {
  OwnedDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.number(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// One request over TLS, as a scraper that trusts `ca`. Empty: no handshake.
std::string FetchTls(int port, const std::string& ca, const std::vector<std::string>& protocols) {
  const net::SslContext context(SSL_CTX_new(TLS_client_method()));
  const std::vector<net::Certificate> authorities = ValueOf(net::ReadCertificates("CA", ca));
  EXPECT_OK(net::Trust(context.get(), authorities));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  std::string offered;
  for (const std::string& one : protocols) offered += static_cast<char>(one.size()) + one;
  if (!offered.empty()) {
    SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>(offered.data()),
                            static_cast<unsigned>(offered.size()));
  }
  const OwnedDescriptor socket = ConnectTo(port);
  const net::Ssl ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), socket.number());
  std::string answer;
  if (SSL_connect(ssl.get()) == 1) {
    constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    // Byte by byte: records and requests have no common borders.
    for (const char c : kRequest) EXPECT_EQ(SSL_write(ssl.get(), &c, 1), 1);
    char buffer[4096];
    for (int count = 0; (count = SSL_read(ssl.get(), buffer, sizeof buffer)) > 0;) {
      answer.append(buffer, static_cast<size_t>(count));
    }
    EXPECT_EQ(SSL_get_shutdown(ssl.get()), SSL_RECEIVED_SHUTDOWN) << "the answer may be cut";
  }
  ERR_clear_error();
  return answer;
}

TEST(HttpPage, PagesAreServedOverTls) {
  const TempDir dir;
  const TestAuthority authority;
  const auto use = [&](const PemIdentity& identity) {
    dir.Write("tls.crt", identity.certificate);
    dir.Write("tls.key", identity.key);
  };
  use(authority.Issue());
  const std::string text(100'000, 'x');
  const auto page = ops::HttpPage::Serve(
      {.endpoint = "127.0.0.1:0",
       .access = {.certificate_file = dir / "tls.crt", .private_key_file = dir / "tls.key"}},
      [&](std::string_view) { return ops::HttpAnswer{.text = text}; });
  ASSERT_OK(page);
  const int port = (*page)->port();
  for (const std::vector<std::string>& offered :
       {std::vector<std::string>{}, {"h2", "http/1.1"}, {"h2"}}) {
    const std::string answer = FetchTls(port, authority.pem(), offered);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_TRUE(answer.ends_with("\r\n\r\n" + text));
  }
  const TestAuthority other("other");
  EXPECT_EQ(FetchTls(port, other.pem(), {}), "");
  // Who speaks HTTP gets no page.
  const OwnedDescriptor plain = ConnectTo(port);
  EXPECT_EQ(write(plain.number(), "GET /metrics HTTP/1.1\r\n\r\n", 25), 25);
  char buffer[64];
  const ssize_t count = recv(plain.number(), buffer, sizeof buffer, MSG_WAITALL);
  EXPECT_THAT(std::string(buffer, count < 0 ? 0 : static_cast<size_t>(count)),
              Not(HasSubstr("HTTP/1.1 200")));
  // A certificate may rotate; half of a pair leaves the previous one.
  dir.Write("tls.crt", "no certificate");
  EXPECT_NE(FetchTls(port, authority.pem(), {}), "");
  use(other.Issue());
  EXPECT_TRUE(Eventually([&] { return !FetchTls(port, other.pem(), {}).empty(); }));
}

TEST(HttpPage, ACertificateThatCantBeUsedIsAnError) {
  const TempDir dir;
  const PemIdentity identity = TestAuthority().Issue();
  dir.Write("tls.crt", identity.certificate);
  dir.Write("tls.key", TestAuthority().Issue().key);
  const auto refusal = [&](const std::string& certificate, const std::string& key) {
    return ops::HttpPage::Serve(
               {.endpoint = "127.0.0.1:0",
                .access = {.certificate_file = certificate, .private_key_file = key}},
               [](std::string_view) { return ops::HttpAnswer{}; })
        .status();
  };
  for (const absl::Status& status :
       {refusal(dir / "tls.crt", ""), refusal("", dir / "tls.key"),
        refusal(dir / "tls.crt", dir / "tls.key"), refusal(dir / "tls.crt", dir / "missing")}) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), StartsWith("metrics "));
  }
}

TEST(CertificateEnd, TheFirstOfTheChainIsShown) {
  const TempDir dir;
  const TestAuthority authority;
  const double now = static_cast<double>(time(nullptr));
  ops::MetricSet metrics;
  dir.Write("tls.crt", authority.Issue({.ends = 5000}).certificate +
                           authority.Issue({.ends = 1000}).certificate);
  ops::AddCertificateEnd(metrics, dir / "tls.crt");
  ops::AddCertificateEnd(metrics, "");
  const auto shown = [&] {
    const std::string text = metrics.Text();
    const std::string name =
        "\ncbt_certificate_expiry_timestamp_seconds{file=\"" + (dir / "tls.crt") + "\"} ";
    const size_t at = text.find(name);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size())) - now;
  };
  EXPECT_NEAR(shown(), 1000, 5);
  dir.Write("tls.crt", authority.Issue({.ends = 90'000}).certificate);
  EXPECT_NEAR(shown(), 90'000, 5);
  // As the server, which keeps the one that it has.
  dir.Write("tls.crt", "torn");
  EXPECT_NEAR(shown(), 90'000, 5);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("file=\"\"")));
}

}  // namespace
}  // namespace cbt::test
