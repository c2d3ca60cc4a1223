#include "ops/http_page.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/descriptor.h"
#include "base/text.h"

namespace cbt::ops {
namespace {

// The kubelet sends no token.
constexpr std::array<std::string_view, 4> kProbes = {"/health", "/healthz", "/livez", "/readyz"};

absl::StatusOr<Secret> ParseToken(const std::string& text) {
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (token.empty()) return absl::InvalidArgumentError("no token");
  return Secret(std::string_view(token.data(), token.size()));
}

std::unique_ptr<WatchedFile<Secret>> WatchToken(const std::string& file) {
  return file.empty() ? nullptr : std::make_unique<WatchedFile<Secret>>(file, ParseToken);
}

void CloseIfOpen(int fd) noexcept {
  if (fd >= 0) close(fd);
}

absl::StatusOr<std::unique_ptr<net::ServerTls>> MakeTls(const PageAccess& access) {
  absl::StatusOr<std::unique_ptr<net::ServerTls>> tls =
      net::ServerTls::Create({.certificate_file = access.certificate_file,
                              .private_key_file = access.private_key_file,
                              .http1 = true});
  if (tls.ok()) return tls;
  return absl::Status(tls.status().code(), absl::StrCat("metrics ", tls.status().message()));
}

int PortOf(int fd) {
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpPage>> HttpPage::Serve(const HttpPageOptions& options,
                                                          Pages pages) {
  const std::string& endpoint = options.endpoint;
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos || colon + 1 == endpoint.size() ||
      endpoint.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("HTTP endpoint: '", endpoint, "': expected host:port"));
  }
  const PageAccess& access = options.access;
  if (!access.token_file.empty()) {
    const auto token = WatchToken(access.token_file)->Get();
    if (!token.ok()) {
      return absl::Status(token.status().code(),
                          absl::StrCat("metrics token: ", token.status().message()));
    }
  }
  absl::StatusOr<std::unique_ptr<net::ServerTls>> tls = MakeTls(access);
  if (!tls.ok()) return tls.status();
  try {
    return std::make_unique<HttpPage>(endpoint.substr(0, colon), endpoint.substr(colon + 1),
                                      std::move(pages), access.token_file, *std::move(tls));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    return absl::UnavailableError(
        absl::StrCat("HTTP endpoint: ", endpoint, ": can't listen on this address"));
  }
}

HttpPage::HttpPage(const std::string& host, const std::string& port, Pages pages,
                   const std::string& token_file, std::unique_ptr<net::ServerTls> tls)
    : pages_(std::move(pages)), token_(WatchToken(token_file)), tls_(std::move(tls)) {
  try {
    connections_.reserve(kMaxConnections);
    Listen(host, port);
    if (pipe2(wake_, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    thread_ = std::thread([this] { Run(); });
  } catch (...) {
    for (const int fd : {listener_, wake_[0], wake_[1]}) CloseIfOpen(fd);
    throw;
  }
}

HttpPage::~HttpPage() {
  close(wake_[1]);
  thread_.join();
  close(wake_[0]);
  close(listener_);
}

void HttpPage::Listen(const std::string& host, const std::string& port) {
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = brackets ? host.substr(1, host.size() - 2) : host;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  // The address of all addresses that takes IPv4, too.
  const char* const node = name.empty() ? "::" : name.c_str();
  addrinfo* list = nullptr;
  if (getaddrinfo(node, port.c_str(), &hints, &list) != 0) {
    throw std::runtime_error("unknown address");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  for (const addrinfo* info = list; info != nullptr && listener_ < 0; info = info->ai_next) {
    const int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const int on = 1;
    const int off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (name.empty()) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
      listener_ = fd;
    } else {
      close(fd);
    }
  }
  if (listener_ < 0 && name.empty()) return Listen("0.0.0.0", port);
  if (listener_ < 0) throw std::runtime_error("can't listen");
  port_ = PortOf(listener_);
}

void HttpPage::Run() noexcept {
  for (;;) {
    try {
      Serve();
      return;
    } catch (const std::bad_alloc&) {
      // Scrapers ask again.
      connections_.clear();
    }
  }
}

// Returns when the pipe is closed.
void HttpPage::Serve() {
  std::vector<pollfd> polls;
  for (;;) {
    polls.clear();
    polls.push_back({.fd = wake_[0], .events = POLLIN, .revents = 0});
    polls.push_back({.fd = listener_, .events = POLLIN, .revents = 0});
    for (const Connection& connection : connections_) {
      polls.push_back(
          {.fd = connection.stream->fd(), .events = connection.waits_for, .revents = 0});
    }
    constexpr int kTickMs = 1000;
    poll(polls.data(), polls.size(), connections_.empty() ? -1 : kTickMs);
    if (polls[0].revents != 0) return;
    const Clock::time_point now = Clock::now();
    size_t at = 2;
    std::erase_if(connections_, [&](Connection& connection) {
      const bool ready = polls[at++].revents != 0;
      const bool stays = now - connection.since < kMaxTime && (!ready || Step(connection));
      return !stays;
    });
    if (polls[1].revents != 0) Accept();
  }
}

void HttpPage::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    // Without free descriptors the connection stays pending, and poll() would not wait.
    if (errno == EMFILE || errno == ENFILE)
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    return;
  }
  OwnedDescriptor socket(fd);
  net::OwnedSsl ssl;
  if (tls_ != nullptr) {
    absl::StatusOr<net::Ssl> made = tls_->NewConnection();
    if (!made.ok()) return;
    ssl.reset(made->release());
  }
  absl::StatusOr<std::unique_ptr<net::SocketStream>> stream =
      net::SocketStream::Create(std::move(socket), std::move(ssl));
  if (!stream.ok()) return;
  if (connections_.size() == kMaxConnections) connections_.erase(connections_.begin());
  connections_.push_back(
      {.stream = *std::move(stream), .since = Clock::now(), .waits_for = POLLIN});
}

// Whether there is more to do.
bool HttpPage::Step(Connection& connection) {
  using State = net::SocketStream::State;
  while (connection.stage != Stage::kSent) {
    switch (Advance(connection).state) {
      case State::kDone:
        break;
      case State::kWantRead:
        connection.waits_for = POLLIN;
        return true;
      case State::kWantWrite:
        connection.waits_for = POLLOUT;
        return true;
      case State::kEnd:
      case State::kError:
        return false;
    }
  }
  // Further input from the client must not turn the end of the answer into a reset.
  connection.stream->Shutdown();
  return false;
}

// The next piece of work. kDone: it went on.
net::SocketStream::Result HttpPage::Advance(Connection& connection) {
  using State = net::SocketStream::State;
  net::SocketStream& stream = *connection.stream;
  net::SocketStream::Result result;
  switch (connection.stage) {
    case Stage::kHandshake:
      result = stream.Handshake();
      if (result.state == State::kDone) connection.stage = Stage::kRequest;
      return result;
    case Stage::kRequest: {
      std::array<char, 2048> buffer;
      result = stream.Read(buffer);
      if (result.state != State::kDone) return result;
      connection.request.append(buffer.data(), result.bytes);
      if (connection.request.find("\r\n\r\n") != std::string::npos) {
        connection.answer = AnswerTo(connection.request);
        connection.stage = Stage::kAnswer;
      } else if (connection.request.size() >= kMaxRequestBytes) {
        result.state = State::kEnd;
      }
      return result;
    }
    case Stage::kAnswer: {
      const iovec part = {.iov_base = connection.answer.data() + connection.sent,
                          .iov_len = connection.answer.size() - connection.sent};
      result = stream.Write({&part, 1});
      if (result.state == State::kDone) connection.sent += result.bytes;
      if (connection.sent == connection.answer.size()) connection.stage = Stage::kFlush;
      return result;
    }
    case Stage::kFlush:
      result = stream.Flush();
      if (result.state == State::kDone) connection.stage = Stage::kSent;
      return result;
    case Stage::kSent:
      break;
  }
  return result;
}

absl::Status HttpPage::CheckToken(std::string_view request) const {
  if (token_ == nullptr) return absl::OkStatus();
  const absl::StatusOr<std::shared_ptr<const Secret>> token = token_->Get();
  if (!token.ok()) return absl::UnavailableError("the token's file can't be used");
  constexpr absl::string_view kName = "authorization:";
  constexpr absl::string_view kScheme = "bearer ";
  for (const absl::string_view line : absl::StrSplit(AbslView(request), "\r\n")) {
    if (!absl::StartsWithIgnoreCase(line, kName)) continue;
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(kName.size()));
    if (!absl::StartsWithIgnoreCase(value, kScheme)) continue;
    const absl::string_view sent = absl::StripLeadingAsciiWhitespace(value.substr(kScheme.size()));
    if ((*token)->Equals({sent.data(), sent.size()})) return absl::OkStatus();
  }
  return absl::UnauthenticatedError("");
}

std::string HttpPage::AnswerTo(const std::string& request) const {
  const auto answer = [](absl::string_view status, absl::string_view extra,
                         absl::string_view body) {
    return absl::StrCat("HTTP/1.1 ", status, "\r\n", extra,
                        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
                        "Content-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
  };
  const size_t end = request.find(' ');
  const size_t begin = end + 1;
  const size_t last = end == std::string::npos ? end : request.find_first_of(" ?\r", begin);
  if (last == std::string::npos) return answer("400 Bad Request", "", "");
  if (request.substr(0, end) != "GET") {
    return answer("405 Method Not Allowed", "Allow: GET\r\n", "");
  }
  const std::string_view path = std::string_view(request).substr(begin, last - begin);
  if (std::find(kProbes.begin(), kProbes.end(), path) == kProbes.end()) {
    if (const absl::Status status = CheckToken(request); absl::IsUnauthenticated(status)) {
      return answer("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", "");
    } else if (!status.ok()) {
      return answer("503 Service Unavailable", "", "the token's file can't be used");
    }
  }
  const std::optional<HttpAnswer> page = pages_(path);
  if (!page.has_value()) return answer("404 Not Found", "", "");
  return answer(page->ok ? "200 OK" : "503 Service Unavailable", "", page->text);
}

}  // namespace cbt::ops
