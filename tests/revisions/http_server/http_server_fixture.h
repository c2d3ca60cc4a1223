// A server of JSON over HTTPS, and a client that sends any bytes.
#ifndef CBT_TESTS_REVISIONS_HTTP_SERVER_HTTP_SERVER_FIXTURE_H_
#define CBT_TESTS_REVISIONS_HTTP_SERVER_HTTP_SERVER_FIXTURE_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/event_log.h"
#include "programs/revisions/http_server/http_server.h"
#include "tests/net/certificates.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {

// A client that sends any bytes, one by one if need be.
class TlsClient {
 public:
  // `from`: the client's own address.
  explicit TlsClient(int port, const PemIdentity* identity = nullptr,
                     const char* from = "127.0.0.1") {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, from, &own.sin_addr);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0) return;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    context_ = SSL_CTX_new(TLS_client_method());
    if (identity != nullptr) Present(*identity);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd_);
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    close(fd_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool SendPlain(std::string_view bytes) {
    return connected_ && send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  }
  // Without TLS: the server has closed the connection before the socket's time limit.
  bool IsClosedPlain() {
    char byte = 0;
    return recv(fd_, &byte, 1, 0) <= 0 && errno != EAGAIN;
  }
  bool Handshake() { return connected_ && SSL_connect(ssl_) == 1; }
  bool Send(std::string_view text) {
    return SSL_write(ssl_, text.data(), static_cast<int>(text.size())) > 0;
  }
  // Until the server closes, or `until` is in it.
  std::string Read(const std::string& until = "") {
    std::string text;
    char bytes[4096];
    while (until.empty() || text.find(until) == std::string::npos) {
      const int count = SSL_read(ssl_, bytes, sizeof bytes);
      if (count <= 0) break;
      text.append(bytes, static_cast<size_t>(count));
    }
    return text;
  }
  // The connection was closed, whatever came before that.
  bool IsClosed() {
    char byte = 0;
    return SSL_read(ssl_, &byte, 1) <= 0 && errno != EAGAIN;
  }
  std::string ServerName() const {
    X509* const certificate = SSL_get1_peer_certificate(ssl_);
    char name[256] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                              sizeof name);
    X509_free(certificate);
    return name;
  }

 private:
  void Present(const PemIdentity& identity) {
    BIO* bio = BIO_new_mem_buf(identity.certificate.data(), -1);
    X509* const certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    bio = BIO_new_mem_buf(identity.key.data(), -1);
    EVP_PKEY* const key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    SSL_CTX_use_certificate(context_, certificate);
    SSL_CTX_use_PrivateKey(context_, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }

  int fd_ = -1;
  bool connected_ = false;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
};

inline std::string Post(const std::string& body, const std::string& more = "") {
  return absl::StrCat("POST /path?a=b HTTP/1.1\r\nHost: x\r\n", more,
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    // Of the client; the server never raises it.
    std::signal(SIGPIPE, SIG_IGN);
    Write("one");
    options_.listen = "127.0.0.1:0";
    options_.certificate_file = dir_ / "tls.crt";
    options_.private_key_file = dir_ / "tls.key";
  }

  void Write(const std::string& name) {
    const PemIdentity identity = ca_.Issue({.name = name});
    Write("tls.crt", identity.certificate);
    Write("tls.key", identity.key);
  }
  void Write(const std::string& file, const std::string& text) {
    std::ofstream(dir_ / (file + ".new")) << text;
    std::filesystem::rename(dir_ / (file + ".new"), dir_ / file);
  }

  kube::http_server::HttpServer& Start(kube::http_server::Handler handler) {
    server_ = ValueOf(kube::http_server::HttpServer::Start(options_, std::move(handler), log_));
    return *server_;
  }
  kube::http_server::HttpServer& StartEcho() {
    return Start(
        [](const std::shared_ptr<const kube::http_server::Request>& request,
           const kube::http_server::Respond& respond) { respond({.body = request->body}); });
  }
  std::unique_ptr<TlsClient> Connect(const PemIdentity* identity = nullptr,
                                     const char* from = "127.0.0.1") {
    auto client = std::make_unique<TlsClient>(server_->port(), identity, from);
    if (!client->Handshake()) throw std::runtime_error("no handshake");
    return client;
  }
  bool WaitFor(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  const TempDir dir_;
  const TestAuthority ca_;
  ops::EventLog log_{nullptr};
  kube::http_server::ServerOptions options_;
  std::unique_ptr<kube::http_server::HttpServer> server_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_REVISIONS_HTTP_SERVER_HTTP_SERVER_FIXTURE_H_
