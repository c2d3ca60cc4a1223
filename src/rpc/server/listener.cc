#include "rpc/server/listener.h"

#include <algorithm>
#include <utility>

#include "cbt/units.h"
#include "rpc/contract/server_event.h"
#include "rpc/http2/tls_options.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

// Requests hold ids, numbers, tokens and secrets; CSI allows 4 KiB for all of them together.
constexpr uint32_t kMaxRequestBytes = 64 * kKiB;

// How long a connection may live after its client's certificate was checked.
constexpr milliseconds kCertifiedAge = std::chrono::hours(1);

// How long calls that are left after a drain may take before they are cancelled.
constexpr milliseconds kLastCalls{100};

constexpr milliseconds kMostLookInterval{1000};
constexpr milliseconds kLeastLookInterval{50};

http2::ServerLimits LimitsOf(const Listener::Options& options) {
  const ConnectionOptions& connection = options.connection;
  http2::ServerLimits limits;
  limits.connections = connection.max_connections;
  limits.memory_bytes = connection.memory_quota;
  limits.request_bytes = kMaxRequestBytes;
  limits.request_time = std::min(limits.request_time, options.stall_timeout);
  http2::ConnectionSettings& settings = limits.connection;
  // A connection may open some more streams than are allowed, so that the excess is refused with a
  // status instead of waiting in the client.
  settings.max_streams =
      static_cast<uint32_t>(std::min<size_t>(options.max_streams, 1 << 20)) + 100;
  settings.keepalive_time = connection.keepalive_time;
  settings.keepalive_timeout = connection.keepalive_timeout;
  settings.handshake_time = connection.handshake_time;
  settings.idle_time = connection.idle_time;
  settings.max_age = connection.max_age;
  const bool certified = !options.tls.client_ca.empty() || !options.tls.client_ca_file.empty();
  if (settings.max_age.count() == 0 && certified) settings.max_age = kCertifiedAge;
  // After its streams have ended as stalled.
  settings.write_stall_time = options.stall_timeout + options.stall_timeout / 4;
  settings.peer.min_ping = connection.min_client_ping;
  return limits;
}

http2::NewServerSsl SslFrom(net::ServerTls* tls) {
  if (tls == nullptr) return {};
  return [tls]() -> absl::StatusOr<net::OwnedSsl> {
    absl::StatusOr<net::Ssl> made = tls->NewConnection();
    if (!made.ok()) return made.status();
    return net::OwnedSsl(made->release());
  };
}

}  // namespace

Listener::Listener(const Options& options, std::unique_ptr<net::ServerTls> tls)
    : state_(options.state),
      telemetry_(options.telemetry),
      interval_(std::clamp(options.stall_timeout / 4, kLeastLookInterval, kMostLookInterval)),
      tls_(std::move(tls)) {}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(const net::Address& address,
                                                          const Options& options,
                                                          const std::vector<Service*>& services,
                                                          net::LoopThreads* loops) {
  absl::StatusOr<std::unique_ptr<net::ServerTls>> tls =
      http2::MakeServerTls(options.tls, options.telemetry);
  if (!tls.ok()) return tls.status();
  std::unique_ptr<Listener> listener(new Listener(options, *std::move(tls)));
  absl::StatusOr<std::unique_ptr<http2::Server>> server =
      http2::Server::Start(address, LimitsOf(options), services, SslFrom(listener->tls_.get()),
                           options.telemetry, loops);
  if (!server.ok()) return server.status();
  listener->server_ = *std::move(server);
  listener->thread_ = std::thread([raw = listener.get()] { raw->Look(); });
  return listener;
}

Listener::~Listener() { Shutdown(); }

void Listener::Look() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    lock.unlock();
    if (tls_ != nullptr) {
      const net::ServerTls::Change change = tls_->TakeClientCaChange();
      if (change != net::ServerTls::Change::kNone) {
        // The previous authority admitted them.
        server_->CloseConnections();
        Report(telemetry_, change == net::ServerTls::Change::kChanged
                               ? ServerEvent::kClientCaChanged
                               : ServerEvent::kClientCaUnusable);
      }
    }
    if (state_) state_(*server_);
    lock.lock();
    changed_.wait_for(lock, interval_, [this] { return closing_; });
  }
}

void Listener::Shutdown() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (server_ != nullptr) server_->Shutdown(kLastCalls);
}

}  // namespace cbt::rpc
