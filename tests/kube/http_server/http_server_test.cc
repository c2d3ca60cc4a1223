#include "kube/http_server/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/event_log.h"
#include "rpc/transport/http2/certificates.h"
#include "support/status.h"
#include "support/temp_dir.h"

namespace cbt::test {
namespace {

using kube::http_server::Handler;
using kube::http_server::HttpServer;
using kube::http_server::Request;
using kube::http_server::Respond;
using kube::http_server::Response;
using kube::http_server::ServerOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

using Clock = std::chrono::steady_clock;

// A client that sends any bytes, one by one if need be.
class TlsClient {
 public:
  explicit TlsClient(int port, const PemIdentity* identity = nullptr) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
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

  // Without TLS.
  bool SendRaw(std::string_view bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  bool Ends() {
    char byte = 0;
    errno = 0;
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

std::string Post(const std::string& body, const std::string& more = "") {
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

  HttpServer& Start(Handler handler) {
    server_ = ValueOf(HttpServer::Start(options_, std::move(handler), log_));
    return *server_;
  }
  HttpServer& StartEcho() {
    return Start([](const std::shared_ptr<const Request>& request, const Respond& respond) {
      respond({.body = request->body});
    });
  }
  std::unique_ptr<TlsClient> Connect(const PemIdentity* identity = nullptr) {
    auto client = std::make_unique<TlsClient>(server_->port(), identity);
    if (!client->Handshake()) throw std::runtime_error("no handshake");
    return client;
  }
  bool WaitFor(const std::function<bool()>& condition) {
    const auto end = Clock::now() + seconds(20);
    while (!condition()) {
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }

  const TempDir dir_;
  const TestAuthority ca_;
  ops::EventLog log_{nullptr};
  ServerOptions options_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ARequestReachesTheHandlerAsItWasSent) {
  std::vector<std::shared_ptr<const Request>> seen;
  Start([&seen](const std::shared_ptr<const Request>& request, const Respond& respond) {
    seen.push_back(request);
    respond({.code = 201,
             .content_type = "text/plain",
             .headers = {{"Retry-After", "7"}},
             .body = "made"});
  });
  const auto client = Connect();
  ASSERT_TRUE(client->Send(Post("{}", "X-Many: 1\r\nx-many: 2\r\n")));
  const std::string answer = client->Read("made");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 201 Created\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain\r\n"));
  EXPECT_THAT(answer, HasSubstr("Retry-After: 7\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n"));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]->method, "POST");
  EXPECT_EQ(seen[0]->path, "/path");
  EXPECT_EQ(seen[0]->query, "a=b");
  EXPECT_EQ(seen[0]->body, "{}");
  EXPECT_THAT(seen[0]->headers, ElementsAre(Pair("host", "x"), Pair("x-many", "1"),
                                            Pair("x-many", "2"), Pair("content-length", "2")));
  EXPECT_EQ(seen[0]->Header("x-many"), "1");
  EXPECT_EQ(seen[0]->Header("none"), "");
  EXPECT_TRUE(seen[0]->peer_certificates.empty());
}

TEST_F(HttpServerTest, AConnectionTakesManyRequests) {
  StartEcho();
  const auto client = Connect();
  for (int i = 0; i < 100; ++i) {
    const std::string body = absl::StrCat("request ", i, ".");
    ASSERT_TRUE(client->Send(Post(body)));
    EXPECT_THAT(client->Read(body), HasSubstr(body));
  }
  // Two at once are answered one after the other.
  ASSERT_TRUE(client->Send(Post("first.") + Post("second.")));
  EXPECT_THAT(client->Read("second."), testing::ContainsRegex("first\\.[^$]*second\\."));
  // In pieces, and in chunks.
  for (const char c : Post("slowly.")) ASSERT_TRUE(client->Send(std::string_view(&c, 1)));
  EXPECT_THAT(client->Read("slowly."), HasSubstr("slowly."));
  ASSERT_TRUE(
      client->Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "3\r\nabc\r\n2\r\nd.\r\n0\r\n\r\n"));
  EXPECT_THAT(client->Read("abcd."), HasSubstr("abcd."));
  ASSERT_TRUE(
      client->Send("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                   "Content-Length: 4\r\n\r\nlast"));
  EXPECT_THAT(client->Read(), HasSubstr("Connection: close"));
  EXPECT_TRUE(WaitFor([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, AnAnswerToHeadHasNoBody) {
  Start([](const std::shared_ptr<const Request>&, const Respond& respond) {
    respond({.body = "hello"});
  });
  const auto client = Connect();
  ASSERT_TRUE(
      client->Send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n"
                   "Connection: close\r\n\r\n"));
  const std::string both = client->Read();
  EXPECT_EQ(both.find("hello"), both.rfind("hello"));
  EXPECT_NE(both.find("Content-Length: 5"), both.rfind("Content-Length: 5"));
}

TEST_F(HttpServerTest, AnswersMayComeLaterAndFromAnyThread) {
  std::vector<std::thread> threads;
  Start([&](const std::shared_ptr<const Request>& request, const Respond& respond) {
    threads.emplace_back([request, respond] {
      std::this_thread::sleep_for(milliseconds(10));
      respond({.body = request->body});
      respond({.body = "too late"});
    });
  });
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([this, i, &right] {
      const auto client = Connect();
      for (int j = 0; j < 5; ++j) {
        const std::string body = absl::StrCat("<", i, ",", j, ">");
        if (client->Send(Post(body)) && client->Read(body).find("too late") == std::string::npos) {
          ++right;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 40);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HttpServerTest, WhatIsNotHttpIsRefused) {
  StartEcho();
  for (const char* const text :
       {"nonsense\r\n\r\n", "GET / HTTP/3.7\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n"}) {
    const auto client = Connect();
    ASSERT_TRUE(client->Send(text));
    EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 400 ")) << text;
  }
  // Nor is plain text an answer to TLS.
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server_->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_GT(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 0);
  char bytes[64];
  while (recv(fd, bytes, sizeof bytes, 0) > 0) {
  }
  close(fd);
  EXPECT_TRUE(WaitFor([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, HeadersAndBodiesHaveLimits) {
  options_.max_header_bytes = 1000;
  options_.max_body_bytes = 2000;
  StartEcho();
  auto client = Connect();
  ASSERT_TRUE(client->Send(Post("", "X-Long: " + std::string(2000, 'x') + "\r\n")));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 431 "));
  client = Connect();
  ASSERT_TRUE(client->Send("GET /" + std::string(2000, 'x')));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 431 "));
  client = Connect();
  ASSERT_TRUE(client->Send(Post(std::string(2000, 'b'))));
  EXPECT_THAT(client->Read("bb"), StartsWith("HTTP/1.1 200 "));
  client = Connect();
  ASSERT_TRUE(client->Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2001\r\n\r\n"));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 413 "));
  client = Connect();
  ASSERT_TRUE(
      client->Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: "
                   "18446744073709551615\r\n\r\n"));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 4"));
  client = Connect();
  ASSERT_TRUE(
      client->Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "7d1\r\n" +
                   std::string(2001, 'b') + "\r\n0\r\n\r\n"));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, BodiesTogetherHaveALimit) {
  options_.max_body_bytes = 600;
  options_.max_memory = 1000;
  std::mutex mutex;
  std::vector<Respond> open;
  Start([&](const std::shared_ptr<const Request>&, const Respond& respond) {
    const std::lock_guard lock(mutex);
    open.push_back(respond);
  });
  const auto first = Connect();
  ASSERT_TRUE(first->Send(Post(std::string(600, 'a'))));
  ASSERT_TRUE(WaitFor([&] {
    const std::lock_guard lock(mutex);
    return open.size() == 1;
  }));
  const auto second = Connect();
  ASSERT_TRUE(second->Send(Post(std::string(401, 'b'))));
  EXPECT_THAT(second->Read(), StartsWith("HTTP/1.1 503 "));
  // One of unknown length counts with the most that it may have.
  const auto third = Connect();
  ASSERT_TRUE(third->Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
  EXPECT_THAT(third->Read(), StartsWith("HTTP/1.1 503 "));
  open[0]({.body = "done"});
  EXPECT_THAT(first->Read("done"), HasSubstr("done"));
  // What was held is free again.
  const auto fourth = Connect();
  ASSERT_TRUE(fourth->Send(Post(std::string(600, 'd'))));
  ASSERT_TRUE(WaitFor([&] {
    const std::lock_guard lock(mutex);
    return open.size() == 2;
  }));
}

TEST_F(HttpServerTest, EveryWaitHasALimit) {
  options_.handshake_time = options_.request_time = options_.handler_time = milliseconds(300);
  options_.idle_time = milliseconds(600);
  Start([](const std::shared_ptr<const Request>& request, const Respond& respond) {
    if (request->path != "/never") respond({.body = "hello"});
  });
  const auto begin = Clock::now();
  TlsClient silent(server_->port());  // no handshake
  const auto half = Connect();        // a request that does not end, though bytes keep coming
  ASSERT_TRUE(half->Send("POST / HTTP/1.1\r\nContent-Length: 100\r\n"));
  const auto idle = Connect();
  ASSERT_TRUE(idle->Send(Post("")));
  EXPECT_THAT(idle->Read("hello"), HasSubstr("hello"));
  const auto forgotten = Connect();
  ASSERT_TRUE(forgotten->Send("GET /never HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(forgotten->Read(), StartsWith("HTTP/1.1 504 "));
  while (half->Send("X: y\r\n") && Clock::now() < begin + seconds(10)) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE(idle->IsClosed());
  EXPECT_GE(Clock::now(), begin + milliseconds(600));
  EXPECT_TRUE(WaitFor([this] { return server_->connections() == 0; }));
  EXPECT_LT(Clock::now(), begin + seconds(10));
}

// OpenSSL would allocate what a hello announces: 131,000 bytes here.
TEST_F(HttpServerTest, VAnAbsurdHelloEndsAtItsFirstBytes) {
  options_.handshake_time = std::chrono::minutes(5);
  StartEcho();
  const std::string absurd("\x16\x03\x01\0\x44\1\1\xff\xb8", 9);
  for (const bool dribbled : {false, true}) {
    TlsClient client(server_->port());
    for (const char c : dribbled ? absurd : std::string()) {
      ASSERT_TRUE(client.SendRaw(std::string(1, c)));
      std::this_thread::sleep_for(milliseconds(5));
    }
    ASSERT_TRUE(dribbled || client.SendRaw(absurd + std::string(64, 'x')));
    EXPECT_TRUE(client.Ends());
  }
  EXPECT_TRUE(WaitFor([this] { return server_->connections() == 0; }));
  const auto honest = Connect();
  ASSERT_TRUE(honest->Send(Post("")));
  EXPECT_THAT(honest->Read("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, AFurtherConnectionReplacesTheOldestWithoutARequest) {
  options_.max_connections = 3;
  std::mutex mutex;
  std::vector<Respond> open;
  Start([&](const std::shared_ptr<const Request>&, const Respond& respond) {
    const std::lock_guard lock(mutex);
    open.push_back(respond);
  });
  const auto ask = [&](TlsClient& client, size_t number) {
    ASSERT_TRUE(client.Send(Post("")));
    ASSERT_TRUE(WaitFor([&] {
      const std::lock_guard lock(mutex);
      return open.size() == number;
    }));
  };
  const auto first = Connect();
  ask(*first, 1);
  const auto second = Connect();
  const auto third = Connect();
  const auto fourth = Connect();
  EXPECT_TRUE(second->IsClosed());
  ask(*third, 2);
  ask(*fourth, 3);
  // All three are being answered.
  TlsClient fifth(server_->port());
  EXPECT_FALSE(fifth.Handshake());
  open[0]({.body = "done"});
  EXPECT_THAT(first->Read("done"), HasSubstr("done"));
  EXPECT_EQ(server_->connections(), 3u);
}

TEST_F(HttpServerTest, AHandlerThatThrowsIsAnError) {
  Start([](const std::shared_ptr<const Request>&, const Respond&) {
    throw std::runtime_error("secret");
  });
  const auto client = Connect();
  ASSERT_TRUE(client->Send(Post("")));
  const std::string answer = client->Read("}\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(answer, testing::Not(HasSubstr("secret")));
}

TEST_F(HttpServerTest, CertificatesAreReadAgain) {
  StartEcho();
  const auto name = [this] { return Connect()->ServerName(); };
  EXPECT_EQ(name(), "one");
  const auto old = Connect();
  Write("two");
  EXPECT_TRUE(WaitFor([&] { return name() == "two"; }));
  // A pair that does not match, and one that is no certificate.
  Write("tls.key", ca_.Issue().key);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(name(), "two");
  Write("tls.crt", "nothing");
  EXPECT_EQ(name(), "two");
  std::filesystem::remove(dir_ / "tls.crt");
  EXPECT_EQ(name(), "two");
  Write("three");
  EXPECT_TRUE(WaitFor([&] { return name() == "three"; }));
  // A connection that exists goes on.
  ASSERT_TRUE(old->Send(Post("still.")));
  EXPECT_THAT(old->Read("still."), HasSubstr("still."));
}

TEST_F(HttpServerTest, AClientMayShowACertificate) {
  options_.ask_for_certificate = true;
  std::vector<std::string> names;
  Start([&names](const std::shared_ptr<const Request>& request, const Respond& respond) {
    std::string name = "none";
    if (!request->peer_certificates.empty()) {
      const std::string& der = request->peer_certificates[0];
      const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
      X509* const certificate = d2i_X509(nullptr, &bytes, static_cast<long>(der.size()));
      char text[256] = {};
      X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text,
                                sizeof text);
      X509_free(certificate);
      name = text;
    }
    names.push_back(name);
    respond({.body = "."});
  });
  const PemIdentity known = ca_.Issue({.name = "front-proxy"});
  // Who issued it is for the handler.
  const PemIdentity foreign = TestAuthority("elsewhere").Issue({.name = "forged"});
  for (const PemIdentity* const identity : {&known, &foreign}) {
    const auto client = Connect(identity);
    ASSERT_TRUE(client->Send(Post("")));
    EXPECT_THAT(client->Read("\r\n\r\n."), HasSubstr("200"));
  }
  const auto client = Connect();
  ASSERT_TRUE(client->Send(Post("")));
  EXPECT_THAT(client->Read("\r\n\r\n."), HasSubstr("200"));
  EXPECT_THAT(names, ElementsAre("front-proxy", "forged", "none"));
}

TEST_F(HttpServerTest, ADrainWaitsForAnswersOnly) {
  std::mutex mutex;
  std::optional<Respond> open;
  Start([&](const std::shared_ptr<const Request>&, const Respond& respond) {
    const std::lock_guard lock(mutex);
    open = respond;
  });
  const auto idle = Connect();
  const auto busy = Connect();
  ASSERT_TRUE(busy->Send(Post("")));
  ASSERT_TRUE(WaitFor([&] {
    const std::lock_guard lock(mutex);
    return open.has_value();
  }));
  std::thread drain([this] { server_->Shutdown(seconds(20)); });
  EXPECT_TRUE(idle->IsClosed());
  TlsClient late(server_->port());
  EXPECT_FALSE(late.Handshake());
  (*open)({.body = "in the end"});
  const std::string answer = busy->Read();
  EXPECT_THAT(answer, HasSubstr("in the end"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  drain.join();
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HttpServerTest, TheEndOfGraceIsTheEnd) {
  std::mutex mutex;
  std::optional<Respond> open;
  Start([&](const std::shared_ptr<const Request>&, const Respond& respond) {
    const std::lock_guard lock(mutex);
    open = respond;
  });
  const auto busy = Connect();
  ASSERT_TRUE(busy->Send(Post("")));
  ASSERT_TRUE(WaitFor([&] {
    const std::lock_guard lock(mutex);
    return open.has_value();
  }));
  const auto begin = Clock::now();
  server_->Shutdown(milliseconds(200));
  EXPECT_GE(Clock::now(), begin + milliseconds(200));
  EXPECT_LT(Clock::now(), begin + seconds(10));
  EXPECT_TRUE(busy->IsClosed());
  server_.reset();
  // No one listens any more.
  (*open)({.body = "too late"});
}

TEST_F(HttpServerTest, WhatCannotWorkIsAnError) {
  const auto handler = [](const std::shared_ptr<const Request>&, const Respond&) {};
  const auto code = [&] { return HttpServer::Start(options_, handler, log_).status().code(); };
  const ServerOptions good = options_;
  for (const char* const listen : {"", "nothing", "127.0.0.1", "127.0.0.1:http"}) {
    options_.listen = listen;
    EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument) << listen;
  }
  options_.listen = "192.0.2.1:0";
  EXPECT_EQ(code(), absl::StatusCode::kUnavailable);
  options_ = good;
  StartEcho();
  options_.listen = server_->address();
  EXPECT_EQ(code(), absl::StatusCode::kUnavailable);
  options_ = good;
  options_.private_key_file = dir_ / "tls.crt";
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  options_.private_key_file = dir_ / "none";
  EXPECT_EQ(code(), absl::StatusCode::kNotFound);
  options_ = good;
  options_.max_memory = 1;
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  options_ = good;
  options_.idle_time = milliseconds(0);
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HttpServerTest, ItListensOnEveryAddress) {
  options_.listen = ":0";
  StartEcho();
  const auto client = Connect();
  ASSERT_TRUE(client->Send(Post("here.")));
  EXPECT_THAT(client->Read("here."), HasSubstr("here."));
}

}  // namespace
}  // namespace cbt::test
