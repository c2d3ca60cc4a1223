#include "programs/revisions/http_server/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/revisions/http_server/http_server_fixture.h"

namespace cbt::test {
namespace {

using kube::http_server::HttpServer;
using kube::http_server::Request;
using kube::http_server::Respond;
using kube::http_server::ServerOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

using Clock = std::chrono::steady_clock;

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

TEST_F(HttpServerTest, ZALengthInDoubtEndsTheConnection) {
  std::atomic<int> handled = 0;
  Start([&handled](const std::shared_ptr<const Request>&, const Respond& respond) {
    ++handled;
    respond({.body = "handled"});
  });
  const std::string post = "POST / HTTP/1.1\r\nHost: x\r\n";
  const std::string inner = "GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  const std::string length = absl::StrCat("Content-Length: ", inner.size(), "\r\n");
  for (const std::string& head :
       {post + "Transfer-Encoding: xchunked\r\n",
        post + "Transfer-Encoding: gzip\r\n",
        post + "Transfer-Encoding: gzip, chunked\r\n",
        post + "Transfer-Encoding: chunked, chunked\r\n",
        post + "Transfer-Encoding: chunked, identity\r\n",
        post + "Transfer-Encoding:\r\n",
        post + "Transfer-Encoding: \"chunked\"\r\n",
        post + "Transfer-Encoding: chunked;q=1\r\n",
        post + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        post + "Transfer-Encoding: chunked\r\n" + length,
        post + length + "Transfer-Encoding: chunked\r\n",
        post + "Transfer-Encoding: xchunked\r\n" + length,
        post + length + length,
        post + "Content-Length: 0, 0\r\n",
        post + "Content-Length: +0\r\n",
        post + "Content-Length: 0x0\r\n",
        post + "Content-Length:\r\n",
        post + "Content-Length: 00000000000000000000\r\n",
        post + "X-Folded: a\r\n Content-Length: 0\r\n",
        post + "Transfer-Encoding:\r\n chunked\r\n",
        post + "Content-Length : 0\r\n",
        std::string("POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                    "Connection: keep-alive\r\n")}) {
    const auto client = Connect();
    ASSERT_TRUE(client->Send(head + "\r\n" + inner));
    const std::string answer = client->Read();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << head;
    EXPECT_EQ(answer.find("HTTP/1.1 200"), std::string::npos) << head << answer;
  }
  EXPECT_EQ(handled, 0);
  // What is certain, in any case of letters.
  const auto client = Connect();
  ASSERT_TRUE(client->Send(post + "transfer-encoding: CHUNKED \r\n\r\n1\r\nx\r\n0\r\n\r\n"));
  EXPECT_THAT(client->Read("handled"), StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(client->Send(post + "\r\n" + inner));
  EXPECT_THAT(client->Read(), testing::ContainsRegex("handled[^$]*handled"));
  EXPECT_EQ(handled, 3);
}

// They would be taken for what the client's proxy has said about its user.
TEST_F(HttpServerTest, ZFieldsAfterABodyAreNoHeaders) {
  std::vector<std::shared_ptr<const Request>> seen;
  Start([&seen](const std::shared_ptr<const Request>& request, const Respond& respond) {
    seen.push_back(request);
    respond({.body = "done."});
  });
  const auto client = Connect();
  ASSERT_TRUE(
      client->Send("POST / HTTP/1.1\r\nX-Remote-User: me\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "2\r\n{}\r\n0\r\nX-Remote-Group: system:masters\r\n\r\n"));
  EXPECT_THAT(client->Read("done."), StartsWith("HTTP/1.1 200 "));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]->body, "{}");
  EXPECT_EQ(seen[0]->Header("x-remote-user"), "me");
  EXPECT_EQ(seen[0]->Header("x-remote-group"), "");
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
