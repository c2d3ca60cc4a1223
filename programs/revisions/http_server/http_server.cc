#include "programs/revisions/http_server/http_server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "programs/revisions/http_server/connection.h"
#include "programs/revisions/http_server/server_certificate.h"

namespace cbt::kube::http_server {
namespace {

namespace asio = boost::asio;
using Error = boost::system::error_code;
using asio::ip::tcp;

// When no descriptor is free, the next connection is not looked at before this.
constexpr std::chrono::milliseconds kShortOfDescriptors{100};
// How often a server that drains looks whether it is done.
constexpr std::chrono::milliseconds kTick{10};

absl::Status CheckOptions(const ServerOptions& options) {
  if (options.max_connections == 0 || options.max_header_bytes < 256 ||
      options.max_body_bytes > options.max_memory) {
    return absl::InvalidArgumentError("HTTPS: limits are too low for any request");
  }
  for (const std::chrono::milliseconds time :
       {options.handshake_time, options.request_time, options.handler_time, options.answer_time,
        options.idle_time}) {
    if (time.count() <= 0) return absl::InvalidArgumentError("HTTPS: times must be above 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::pair<std::string, std::string>> SplitAddress(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos || colon + 1 == listen.size() ||
      listen.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("listen: '", listen, "': expected host:port"));
  }
  std::string host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return std::make_pair(host, listen.substr(colon + 1));
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const ServerOptions& options, Handler handler, ops::EventLog& log)
      : shared_(std::make_shared<SharedState>(options, std::move(handler), log)),
        acceptor_(*shared_->io),
        pause_(*shared_->io) {}

  ~Impl() { Shutdown(std::chrono::milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    absl::StatusOr<std::unique_ptr<ServerCertificate>> certificate =
        ServerCertificate::Read(options().certificate_file, options().private_key_file,
                                options().ask_for_certificate, shared_->log);
    if (!certificate.ok()) return certificate.status();
    certificate_ = *std::move(certificate);
    if (absl::Status status = Listen(); !status.ok()) return status;
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  int port() const noexcept { return port_; }
  const std::string& address() const noexcept { return address_; }
  size_t connections() const noexcept { return shared_->open; }

  void Shutdown(std::chrono::milliseconds grace) {
    const std::lock_guard lock(shutdown_);
    if (!thread_.joinable()) return;
    asio::post(*shared_->io, [this] { StopAccepting(); });
    const auto end = std::chrono::steady_clock::now() + grace;
    while (!drained_ || shared_->open > 0) {
      if (drained_ && std::chrono::steady_clock::now() >= end) break;
      std::this_thread::sleep_for(kTick);
    }
    asio::post(*shared_->io, [this] {
      while (!shared_->connections.empty()) shared_->connections.front()->Close();
    });
    // Without connections there is nothing left to do.
    thread_.join();
  }

 private:
  const ServerOptions& options() const noexcept { return shared_->options; }

  absl::Status Listen() {
    const absl::StatusOr<std::pair<std::string, std::string>> place =
        SplitAddress(options().listen);
    if (!place.ok()) return place.status();
    const auto& [host, port] = *place;
    Error error;
    tcp::resolver resolver(*shared_->io);
    const auto found =
        host.empty()
            ? tcp::resolver::results_type()
            : resolver.resolve(host, port, tcp::resolver::passive | tcp::resolver::numeric_service,
                               error);
    const auto number = static_cast<unsigned short>(std::min(std::stoul("0" + port), 65535UL));
    if (host.empty()) {
      // The address of all addresses that takes IPv4, too; or a machine without IPv6.
      error = ListenOn(tcp::endpoint(tcp::v6(), number));
      if (error) error = ListenOn(tcp::endpoint(tcp::v4(), number));
    } else if (!error) {
      error = asio::error::host_not_found;
      for (const auto& entry : found) {
        error = ListenOn(entry.endpoint());
        if (!error) break;
      }
    }
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("listen: ", options().listen, ": ", error.message()));
    }
    port_ = acceptor_.local_endpoint().port();
    const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
    address_ = absl::StrCat(host.empty() ? "[::]" : shown, ":", port_);
    return absl::OkStatus();
  }

  Error ListenOn(const tcp::endpoint& endpoint) {
    Error error;
    Error ignored;
    acceptor_.close(ignored);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && endpoint.address().is_v6()) {
      acceptor_.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
    }
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    return error;
  }

  void Accept() {
    accepting_ = true;
    acceptor_.async_accept([this](const Error& error, tcp::socket socket) {
      accepting_ = false;
      if (shared_->draining) return;
      if (error) return Pause();
      if (shared_->MakeRoom(shared_->FirstPlace())) {
        Error ignored;
        socket.set_option(tcp::no_delay(true), ignored);
        std::make_shared<Connection>(std::move(socket), certificate_->Current(), shared_)->Start();
      }
      Accept();
    });
  }

  void Pause() {
    accepting_ = true;
    pause_.expires_after(kShortOfDescriptors);
    pause_.async_wait([this](const Error&) {
      accepting_ = false;
      if (!shared_->draining) Accept();
    });
  }

  void StopAccepting() {
    shared_->draining = true;
    Error ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    const auto all = shared_->connections;
    for (const std::shared_ptr<Connection>& one : all) one->Drain();
    drained_ = true;
  }

  void Run() {
    for (;;) {
      try {
        if (!accepting_ && !shared_->draining) Accept();
        shared_->io->run();
        return;
      } catch (const std::exception& error) {
        // A connection for which there was no memory.
        shared_->log.Failed("connection refused", absl::InternalError(error.what()));
      }
    }
  }

  const std::shared_ptr<SharedState> shared_;
  std::unique_ptr<ServerCertificate> certificate_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  bool accepting_ = false;  // on the server's thread
  int port_ = 0;
  std::string address_;
  std::mutex shutdown_;
  std::atomic<bool> drained_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const ServerOptions& options,
                                                              Handler handler,
                                                              ops::EventLog& log) try {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto impl = std::make_unique<Impl>(options, std::move(handler), log);
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
} catch (const std::system_error&) {
  return absl::ResourceExhaustedError("threads: the system can't start more");
} catch (const std::bad_alloc&) {
  return absl::Status(absl::StatusCode::kResourceExhausted, "");
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const noexcept { return impl_->port(); }

const std::string& HttpServer::address() const noexcept { return impl_->address(); }

size_t HttpServer::connections() const noexcept { return impl_->connections(); }

void HttpServer::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::kube::http_server
