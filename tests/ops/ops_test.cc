// Metrics and logs: what they report about streams, and what they must never contain.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cbt/ops/log.h"
#include "cbt/ops/metrics.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/units.h"
#include "ops/http_page.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/list_all.h"
#include "tests/support/files.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace ops_test {

using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

// The response to an HTTP client.
std::string Fetch(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return "";
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  if (write(fd, request.data(), request.size()) < 0) return "";
  std::string answer;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(fd, buffer, sizeof buffer)) > 0;) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  close(fd);
  return answer;
}

TEST(Metrics, CountStreamsTuplesAndBytes) {
  auto metrics = ops::Metrics::Serve("127.0.0.1:0");
  ASSERT_OK(metrics);
  const TempDir dir;
  FunctionProvider provider(
      [](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
        if (call.target == "missing") return absl::NotFoundError("canary");
        return Extents(CursorOver({{0, 4096}, {8192, 4096}}, kMiB));
      });
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.service.apis = {rpc::Api::kCsi, rpc::Api::kPaged};
  options.service.telemetry.observer = metrics->get();
  auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  rpc::ListRequest request;
  request.address = (*server)->address();
  request.snapshot_id = "snapshot-canary";
  EXPECT_OK(ListAll(request));
  request.starting_offset = 4096;
  EXPECT_OK(ListAll(request));
  request.base_snapshot_id = "base-canary";
  request.snapshot_id = "missing";
  EXPECT_FALSE(ListAll(request).ok());
  request.max_results = -1;
  EXPECT_FALSE(ListAll(request).ok());
  request = {};
  request.address = (*server)->address();
  request.api = rpc::Api::kPaged;
  request.snapshot_id = "snapshot-canary";
  EXPECT_OK(ListAll(request));
  server->reset();

  const std::string text = Fetch((*metrics)->port());
  for (const char* line :
       {R"(cbt_streams_total{api="csi",code="OK",method="allocated"} 2)",
        R"(cbt_streams_total{api="csi",code="NOT_FOUND",method="delta"} 1)",
        R"(cbt_streams_total{api="csi",code="INVALID_ARGUMENT",method="delta"} 1)",
        R"(cbt_streams_total{api="paged",code="OK",method="allocated"} 1)",
        R"(cbt_streams_in_flight{api="csi",method="allocated"} 0)",
        R"(cbt_stream_resumes_total{api="csi",method="allocated"} 1)",
        R"(cbt_stream_tuples_total{api="csi",method="allocated"} 3)",
        R"(cbt_stream_reported_bytes_total{api="csi",method="allocated"} 12288)",
        R"(cbt_stream_first_message_seconds_count{api="csi",method="allocated"} 2)",
        R"(cbt_stream_seconds_count{api="csi",method="delta"} 2)"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("canary")));
  for (const char* address : {"nowhere", "", ":", ":9100", "127.0.0.1:", "127.0.0.1:http",
                              "127.0.0.1:9100/metrics", "http://127.0.0.1"}) {
    const absl::Status status = ops::Metrics::Serve(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(status.ToString(), HasSubstr("expected host:port"));
  }
  EXPECT_EQ(ops::Metrics::Serve("127.0.0.1:" + std::to_string((*metrics)->port())).status().code(),
            absl::StatusCode::kUnavailable);
}

int ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// Clients that never finish their request, more of them than there are slots.
TEST(Metrics, AttackSClientsThatDribbleDelayNoScraper) {
  const auto metrics = ops::Metrics::Serve("127.0.0.1:0");
  ASSERT_OK(metrics);
  std::vector<int> dribblers;
  for (int i = 0; i < 100; ++i) {
    dribblers.push_back(ConnectTo((*metrics)->port()));
    EXPECT_EQ(write(dribblers.back(), "GET ", 4), 4);
  }
  const Stopwatch watch;
  EXPECT_THAT(Fetch((*metrics)->port()), HasSubstr("cbt_server_connections 0"));
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
  for (const int fd : dribblers) close(fd);
}

TEST(Metrics, OtherRequestsAreRefused) {
  const auto metrics = ops::Metrics::Serve("127.0.0.1:0");
  ASSERT_OK(metrics);
  const auto ask = [&](const std::string& request) {
    const int fd = ConnectTo((*metrics)->port());
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[64] = {};
    const ssize_t count = recv(fd, buffer, sizeof buffer, MSG_WAITALL);
    close(fd);
    return std::string(buffer, count < 0 ? 0 : static_cast<size_t>(count));
  };
  EXPECT_THAT(ask("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"), HasSubstr(" 200 "));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), HasSubstr(" 404 "));
  EXPECT_THAT(ask("POST /metrics HTTP/1.1\r\n\r\n"), HasSubstr(" 405 "));
  EXPECT_THAT(ask("GET\r\n\r\n"), HasSubstr(" 400 "));
  EXPECT_EQ(ask("GET /" + std::string(20000, 'x')), "");
}

TEST(HttpPage, AnswersByPathOnEveryAddress) {
  bool healthy = false;
  const ops::HttpPage page("", "0", [&](std::string_view path) -> std::optional<ops::HttpAnswer> {
    if (path != "/health") return std::nullopt;
    return ops::HttpAnswer{.ok = healthy, .text = healthy ? "ok" : "not ready"};
  });
  const auto ask = [&](const std::string& path) {
    const int fd = ConnectTo(page.port());
    const std::string request = "GET " + path + " HTTP/1.1\r\n\r\n";
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t count = 0; (count = read(fd, buffer, sizeof buffer)) > 0;) {
      answer.append(buffer, static_cast<size_t>(count));
    }
    close(fd);
    return answer;
  };
  EXPECT_THAT(ask("/health"), testing::StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(ask("/health"), testing::EndsWith("\r\n\r\nnot ready"));
  healthy = true;
  EXPECT_THAT(ask("/health"), testing::StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(ask("/health?verbose=1"), testing::EndsWith("\r\n\r\nok"));
  EXPECT_THAT(ask("/healthz"), testing::StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask("/metrics"), testing::StartsWith("HTTP/1.1 404 "));
}

TEST(HttpPage, WhatIsNoProbeNeedsTheToken) {
  const TempDir dir;
  dir.Write("token", "first\n");
  const auto page =
      ops::HttpPage::Serve({.endpoint = "127.0.0.1:0", .access = {.token_file = dir / "token"}},
                           [](std::string_view) { return ops::HttpAnswer{.text = "seen"}; });
  ASSERT_OK(page);
  const auto ask = [&](const std::string& path, const std::string& header) {
    const int fd = ConnectTo((*page)->port());
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + header + "\r\n";
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[4096];
    const ssize_t count = read(fd, buffer, sizeof buffer);
    close(fd);
    return std::string(buffer, count < 0 ? 0 : static_cast<size_t>(count));
  };
  for (const char* const probe : {"/health", "/healthz", "/livez", "/readyz"}) {
    EXPECT_THAT(ask(probe, ""), testing::StartsWith("HTTP/1.1 200 ")) << probe;
  }
  for (const char* const header :
       {"", "Authorization: Bearer\r\n", "Authorization: Bearer \r\n",
        "Authorization: Bearer firs\r\n", "Authorization: Bearer first2\r\n",
        "Authorization: Basic first\r\n", "X-Authorization: Bearer first\r\n",
        "X: Authorization: Bearer first\r\n"}) {
    const std::string answer = ask("/metrics", header);
    EXPECT_THAT(answer, testing::StartsWith("HTTP/1.1 401 ")) << header;
    EXPECT_THAT(answer, testing::Not(HasSubstr("seen"))) << header;
  }
  for (const char* const path : {"/metrics", "/metrics?x=1", "/healthz/", "/other"}) {
    EXPECT_THAT(ask(path, ""), testing::StartsWith("HTTP/1.1 401 ")) << path;
    EXPECT_THAT(ask(path, "authorization:  bearer first\r\n"), testing::StartsWith("HTTP/1.1 200 "))
        << path;
  }
  // It may rotate; while it can't be used, no token is enough.
  dir.Write("token", "second one");
  EXPECT_THAT(ask("/metrics", "Authorization: Bearer first\r\n"),
              testing::StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask("/metrics", "Authorization: Bearer second one\r\n"),
              testing::StartsWith("HTTP/1.1 200 "));
  dir.Write("token", "");
  for (const char* const header : {"", "Authorization: Bearer \r\n"}) {
    EXPECT_THAT(ask("/metrics", header), testing::StartsWith("HTTP/1.1 503 "));
  }
  EXPECT_THAT(ask("/healthz", ""), testing::StartsWith("HTTP/1.1 200 "));
  const auto without =
      ops::HttpPage::Serve({.endpoint = ":0", .access = {.token_file = dir / "missing"}},
                           [](std::string_view) { return ops::HttpAnswer{}; });
  EXPECT_EQ(without.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(without.status().message()), HasSubstr("metrics token: "));
}

// The start of this process lies before now, and not long before.
TEST(Metrics, TheStartOfTheProcessIsShown) {
  const std::string text = ops::Metrics::Create()->Text();
  const size_t at = text.find("\nprocess_start_time_seconds ");
  ASSERT_NE(at, std::string::npos);
  const double start = std::stod(text.substr(at + 28));
  const double now = static_cast<double>(time(nullptr));
  EXPECT_LE(start, now + 1);
  EXPECT_GT(start, now - 86400);
}

// An operator sees which clients hold resources, and why streams end.
TEST(Metrics, AttackTTheStateOfAServerAndTheCausesOfEndsAreShown) {
  const auto metrics = ops::Metrics::Create();
  const TempDir dir;
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(uint64_t{1} << 46, 512));
  });
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.service.stream.max_streams = 1;
  options.service.stream.stall_timeout = std::chrono::milliseconds(800);
  options.service.telemetry.observer = metrics.get();
  const auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  const auto shows = [&](const char* line) {
    return Eventually([&] { return metrics->Text().find(line) != std::string::npos; });
  };
  {
    // Reads nothing.
    RawCall stalled(Connect((*server)->address()), kAllocatedPath, Ask{}.bytes());
    ASSERT_TRUE(Eventually([&] { return (*server)->open_streams() == 1; }));
    EXPECT_TRUE(shows("cbt_server_connections 1"));
    EXPECT_EQ(Get(Connect((*server)->address()), Ask{}).status.error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_TRUE(shows(R"(cbt_server_events_total{event="stream_refused"} 1)"));
    EXPECT_TRUE(shows(R"(cbt_stream_ends_total{api="csi",method="allocated",reason="stalled"} 1)"));
    EXPECT_TRUE(shows(R"(cbt_stream_ends_total{api="csi",method="allocated",reason="refused"} 1)"));
  }
  EXPECT_TRUE(shows("cbt_server_connections 0"));
  EXPECT_THAT(metrics->Text(), HasSubstr("process_resident_memory_bytes "));
  {
    RawCall cancelled(Connect((*server)->address()), kAllocatedPath, Ask{}.bytes());
    ASSERT_TRUE(cancelled.Read().has_value());
  }
  EXPECT_TRUE(shows(R"(cbt_stream_ends_total{api="csi",method="allocated",reason="client"} 1)"));
}

// A connection to a Unix socket that only sends what a test sends.
class Socket {
 public:
  explicit Socket(const std::string& address)
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    address.substr(sizeof "unix://" - 1).copy(name.sun_path, sizeof name.sun_path - 1);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  void Send(const std::string& bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

 private:
  const int fd_;
};

// Why connections are refused and closed, and what passes through them.
TEST(Metrics, AttackTTheEndsOfConnectionsAreCounted) {
  const auto metrics = ops::Metrics::Create();
  const TempDir dir;
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(kMiB, 512));
  });
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  // The state is reported four times per stall_timeout.
  options.service.stream.stall_timeout = std::chrono::milliseconds(800);
  options.service.telemetry.observer = metrics.get();
  const auto shows = [&](const std::string& line) {
    return Eventually([&] { return metrics->Text().find(line) != std::string::npos; },
                      std::chrono::seconds(20));
  };
  const auto event = [&](const char* name) {
    return shows(std::string(R"(cbt_server_events_total{event=")") + name + R"("} 1)");
  };
  const std::string preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  {
    options.connection.max_connections = 1;
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    const Socket first((*server)->address());
    first.Send(preface);
    EXPECT_TRUE(shows("cbt_server_connections_accepted_total 1"));
    EXPECT_TRUE(shows("cbt_server_received_bytes_total 33"));
    const Socket second((*server)->address());
    EXPECT_TRUE(event("connection_replaced"));
    EXPECT_TRUE(Eventually([&] {
      return metrics->Text().find("cbt_server_memory_bytes 0\n") == std::string::npos &&
             metrics->Text().find("cbt_server_sent_bytes_total 0\n") == std::string::npos;
    }));
  }
  {
    options.connection = {};
    options.connection.handshake_time = std::chrono::milliseconds(50);
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    const Socket silent((*server)->address());
    EXPECT_TRUE(event("handshake_failed"));
  }
  {
    options.connection = {};
    options.connection.idle_time = std::chrono::milliseconds(50);
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    const Socket idle((*server)->address());
    idle.Send(preface);
    EXPECT_TRUE(event("connection_idle"));
  }
  {
    options.connection = {};
    options.connection.max_age = std::chrono::milliseconds(50);
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    const Socket old((*server)->address());
    old.Send(preface);
    EXPECT_TRUE(event("connection_aged"));
  }
  {
    options.connection = {};
    options.connection.keepalive_time = std::chrono::milliseconds(50);
    options.connection.keepalive_timeout = std::chrono::milliseconds(50);
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    const Socket mute((*server)->address());
    mute.Send(preface);
    EXPECT_TRUE(event("connection_silent"));
  }
  {
    options.connection = {};
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    const Socket flooding((*server)->address());
    // Pings, more often than min_client_ping allows.
    std::string pings = preface;
    for (int i = 0; i < 4; ++i) pings += std::string("\0\0\x08\6\0\0\0\0\0", 9) + "12345678";
    flooding.Send(pings);
    EXPECT_TRUE(event("connection_flood"));
  }
  {
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    const Socket resets((*server)->address());
    // HEADERS of an unfinished request (POST, http, /), and RST_STREAM CANCEL.
    resets.Send(preface + std::string("\0\0\3\1\4\0\0\0\1\x83\x86\x84", 12) +
                std::string("\0\0\4\3\0\0\0\0\1\0\0\0\x08", 13));
    EXPECT_TRUE(shows("cbt_server_resets_total 1"));
  }
}

TEST(Log, ValuesCanForgeNothing) {
  EXPECT_EQ(ops::LogValue("plain-1.2"), "plain-1.2");
  EXPECT_EQ(ops::LogValue(""), "\"\"");
  EXPECT_EQ(ops::LogValue("a b"), "\"a b\"");
  EXPECT_EQ(ops::LogValue("a\nlevel=error"), R"("a\x0alevel=error")");
  EXPECT_EQ(ops::LogValue("q\"\\"), R"("q\"\\")");
  EXPECT_EQ(ops::LogValue("\xc2\x9b"), "\"\xc2\\x9b\"");
  // Terminals interpret this one, too.
  EXPECT_EQ(ops::LogValue("a\x7f"), R"("a\x7f")");
}

// Tokens, secrets and everything else in a request, at the highest level and through every failure.
TEST(Log, E19NothingOfARequestIsEverLogged) {
  const TempDir dir;
  const std::string path = dir / "log";
  auto log = ops::MakeLog({.level = rpc::LogLevel::kDebug, .file = path});
  ASSERT_OK(log);
  auto metrics = ops::Metrics::Create();
  std::string texts;
  {
    FunctionProvider provider(
        [](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
          if (call.target == "ns/canary-throws") throw std::runtime_error("canary");
          if (call.target == "ns/canary-fails") return absl::InternalError("no such volume");
          return Extents(CursorOver({{0, 4096}}, kMiB));
        });
    std::vector<rpc::TokenGrant> grants(1);
    grants[0] = {.token = Secret("canary-token"), .name = "canary-user", .name_spaces = {"ns"}};
    const auto access = rpc::MakeTokenAccess(std::move(grants));
    const auto directories = rpc::MakeDirectoryResolver();
    Secrets held;
    held.Set("canary-key", "canary-secret");
    const auto secrets = rpc::MakeStaticSecrets(std::move(held));
    rpc::ServerOptions server_options;
    server_options.listen = "unix://" + (dir / "plugin");
    server_options.service.telemetry = {.observer = metrics.get(), .log = log->get()};
    const auto server = rpc::Server::Start(provider, server_options);
    ASSERT_OK(server);
    rpc::RelayOptions relay_options;
    relay_options.listen = "unix://" + (dir / "relay");
    relay_options.plugin = (*server)->address();
    relay_options.service.access = {.authenticator = access.get(),
                                    .authorizer = access.get(),
                                    .resolver = directories.get(),
                                    .secrets = secrets.get()};
    relay_options.service.telemetry = server_options.service.telemetry;
    const auto relay = rpc::Relay::Start(relay_options);
    ASSERT_OK(relay);
    for (const char* token : {"canary-token", "canary-wrong", ""}) {
      for (const char* snapshot : {"canary", "canary-throws", "canary-fails", "../canary", ""}) {
        for (const char* base : {"", "ns/canary-base", "canary-elsewhere"}) {
          rpc::ListRequest request;
          request.address = (*relay)->address();
          request.api = rpc::Api::kKubernetes;
          request.token = Secret(token);
          request.name_space = std::string("ns");
          request.snapshot_id = snapshot;
          if (*base != '\0') request.base_snapshot_id = base;
          request.retry_for = {};
          texts += ListAll(request).status().ToString() + "\n";
        }
      }
    }
  }
  const std::string lines = ReadFile(path);
  EXPECT_THAT(lines, HasSubstr("event=\"stream closed\""));
  EXPECT_THAT(lines, HasSubstr("event=\"stream opened\""));
  EXPECT_THAT(lines, HasSubstr("code=UNAUTHENTICATED"));
  for (const std::string& everything : {lines, metrics->Text(), texts}) {
    EXPECT_THAT(everything, Not(HasSubstr("canary")));
    EXPECT_THAT(everything, Not(HasSubstr("Y2FuYXJ5")));      // in base64
    EXPECT_THAT(everything, Not(HasSubstr("63616e617279")));  // in hexadecimal digits
  }
}

TEST(Log, KeepsToItsLevel) {
  const TempDir dir;
  const std::string path = dir / "log";
  {
    auto log = ops::MakeLog({.level = rpc::LogLevel::kWarning, .file = path});
    ASSERT_OK(log);
    EXPECT_FALSE((*log)->Wants(rpc::LogLevel::kInfo));
    const rpc::LogField fields[] = {{"key", "a b"}};
    (*log)->Write(rpc::LogLevel::kError, "it happened", fields);
  }
  EXPECT_THAT(ReadFile(path), HasSubstr(" level=error event=\"it happened\" key=\"a b\"\n"));
  EXPECT_EQ(ops::MakeLog({.level = rpc::LogLevel::kInfo, .file = dir.path()}).status().code(),
            absl::StatusCode::kUnavailable);
}

// A custom sink that does not check whether it wants a line.
class Lines final : public rpc::LogSink {
 public:
  explicit Lines(rpc::LogLevel level) : level_(level) {}
  bool Wants(rpc::LogLevel level) const noexcept override { return level >= level_; }
  void Write(rpc::LogLevel level, std::string_view event,
             std::span<const rpc::LogField> fields) noexcept override {
    std::string line = std::string(rpc::LogLevelName(level)) + " " + std::string(event);
    for (const rpc::LogField& field : fields) {
      if (field.key == "code") line.append(" ").append(field.value);
    }
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  const rpc::LogLevel level_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(Log, HoldsWhatIsWantedAndNothingElse) {
  const auto lines = [](rpc::LogLevel level) {
    Lines log(level);
    const TempDir dir;
    FunctionProvider provider(
        [](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
          if (call.target != "s") return absl::NotFoundError("no such snapshot");
          return Extents(CursorOver({{0, 4096}}, kMiB));
        });
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    options.service.telemetry.log = &log;
    auto server = ValueOf(rpc::Server::Start(provider, options));
    rpc::ListRequest request;
    request.address = server->address();
    for (const char* snapshot : {"s", "other"}) {
      request.snapshot_id = snapshot;
      EXPECT_EQ(ListAll(request).ok(), request.snapshot_id == "s");
    }
    server.reset();
    return log.lines();
  };
  EXPECT_THAT(lines(rpc::LogLevel::kDebug),
              UnorderedElementsAre("debug stream opened", "debug stream opened",
                                   "info stream closed OK", "warning stream closed NOT_FOUND"));
  EXPECT_THAT(lines(rpc::LogLevel::kInfo),
              UnorderedElementsAre("info stream closed OK", "warning stream closed NOT_FOUND"));
  EXPECT_THAT(lines(rpc::LogLevel::kWarning),
              UnorderedElementsAre("warning stream closed NOT_FOUND"));
  EXPECT_THAT(lines(rpc::LogLevel::kError), UnorderedElementsAre());
}

}  // namespace ops_test
}  // namespace cbt::test
