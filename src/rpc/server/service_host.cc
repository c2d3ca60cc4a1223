#include "rpc/server/service_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "net/address.h"
#include "rpc/http2/tls_options.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMinMessageBytes = 4 * kKiB;
constexpr size_t kMaxThreads = 1024;

// Requests hold ids, numbers, tokens and secrets; CSI allows 4 KiB for all of them together.
constexpr uint32_t kMaxRequestBytes = 64 * kKiB;

// How long a connection may live after its client's certificate was checked.
constexpr milliseconds kCertifiedAge = std::chrono::hours(1);

// How long calls that are left after a drain may take before they are cancelled.
constexpr milliseconds kLastCalls{100};

constexpr milliseconds kMaxLookInterval{1000};
constexpr milliseconds kLeastLookInterval{50};

http2::ServerLimits LimitsOf(const StreamOptions& stream, const ConnectionOptions& connection,
                             const TlsOptions& tls) {
  http2::ServerLimits limits;
  limits.connections = connection.max_connections;
  limits.memory_bytes = connection.memory_quota;
  limits.request_bytes = kMaxRequestBytes;
  limits.request_time = std::min(limits.request_time, stream.stall_timeout);
  http2::ConnectionSettings& settings = limits.connection;
  // A connection may open some more streams than are allowed, so that the excess is refused with a
  // status instead of waiting in the client.
  settings.max_streams = static_cast<uint32_t>(std::min<size_t>(stream.max_streams, 1 << 20)) + 100;
  settings.keepalive_time = connection.keepalive_time;
  settings.keepalive_timeout = connection.keepalive_timeout;
  settings.handshake_time = connection.handshake_time;
  settings.idle_time = connection.idle_time;
  settings.max_age = connection.max_age;
  const bool certified = !tls.client_ca.empty() || !tls.client_ca_file.empty();
  if (settings.max_age.count() == 0 && certified) settings.max_age = kCertifiedAge;
  // After its streams have ended as stalled.
  settings.write_stall_time = stream.stall_timeout + stream.stall_timeout / 4;
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

absl::Status OutOfRange(std::string_view option, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(option), ": expected ", AbslView(expected)));
}

}  // namespace

absl::Status CheckStreamOptions(const StreamOptions& stream) {
  if (stream.message_bytes < kMinMessageBytes || stream.message_bytes > kMaxMessageBytes) {
    return OutOfRange("message_bytes", "4 KiB to 1 MiB - 1");
  }
  if (stream.messages_in_flight == 0) return OutOfRange("messages_in_flight", "at least 1");
  if (stream.bytes_in_flight == 0) return OutOfRange("bytes_in_flight", "at least 1");
  if (stream.threads == 0 || stream.threads > kMaxThreads) {
    return OutOfRange("threads", "1 to 1024");
  }
  if (stream.max_streams == 0) return OutOfRange("max_streams", "at least 1");
  if (stream.stall_timeout <= milliseconds{0}) return OutOfRange("stall_timeout", "more than 0");
  if (stream.total_time < milliseconds{0}) return OutOfRange("total_time", "0 or more");
  const StreamShape& shape = stream.shape;
  if (shape.type == BlockMetadataType::kUnknown) {
    return OutOfRange("shape.type", "FIXED_LENGTH or VARIABLE_LENGTH");
  }
  for (const uint64_t bytes : {shape.block_size, shape.alignment}) {
    if (bytes > kMaxGranularity) return OutOfRange("shape", "sizes up to 2^62");
  }
  return absl::OkStatus();
}

absl::Status CheckConnectionOptions(const ConnectionOptions& connection) {
  if (connection.keepalive_time <= milliseconds{0}) {
    return OutOfRange("keepalive_time", "more than 0");
  }
  if (connection.keepalive_timeout <= milliseconds{0}) {
    return OutOfRange("keepalive_timeout", "more than 0");
  }
  if (connection.min_client_ping < milliseconds{0}) {
    return OutOfRange("min_client_ping", "0 or more");
  }
  if (connection.max_connections == 0) return OutOfRange("max_connections", "1 or more");
  if (connection.handshake_time <= milliseconds{0}) {
    return OutOfRange("handshake_time", "more than 0");
  }
  if (connection.idle_time < milliseconds{0}) return OutOfRange("idle_time", "0 or more");
  if (connection.max_age < milliseconds{0}) return OutOfRange("max_age", "0 or more");
  return absl::OkStatus();
}

ServiceHost::ServiceHost(const ServiceOptions& options)
    : limited_(options.telemetry),
      telemetry_(limited_.get()),
      stream_(options.stream),
      registry_(stream_.max_streams, stream_.stall_timeout, stream_.total_time),
      small_calls_(stream_.stall_timeout, telemetry_),
      health_(small_calls_, stream_.stall_timeout, telemetry_) {}

ServiceOptions ServiceHost::Limited(ServiceOptions options) const {
  options.telemetry = telemetry_;
  return options;
}

void ServiceHost::ReportState() const {
  if (telemetry_.observer == nullptr) return;
  const StreamRegistry::Counts streams = registry_.Count();
  const StreamRegistry::Counts small = small_calls_.Count();
  const StreamRegistry::Counts watches = health_.Count();
  telemetry_.observer->OnState({.connections = server_->connections(),
                                .streams = streams.open,
                                .waiting = server_->waiting(),
                                .small_calls = small.open,
                                .health_watches = watches.open,
                                .overdue = streams.overdue + small.overdue + watches.overdue,
                                .memory = server_->memory(),
                                .accepted = server_->accepted(),
                                .received = server_->traffic().received.load(),
                                .sent = server_->traffic().sent.load(),
                                .resets = server_->traffic().resets.load()});
}

void ServiceHost::CheckClientCa() {
  if (tls_ == nullptr) return;
  const net::ServerTls::Change change = tls_->TakeClientCaChange();
  if (change == net::ServerTls::Change::kNone) return;
  // The previous authority admitted them.
  server_->CloseConnections();
  Report(telemetry_, change == net::ServerTls::Change::kChanged ? ServerEvent::kClientCaChanged
                                                                : ServerEvent::kClientCaUnusable);
}

void ServiceHost::CheckFiles() {
  const milliseconds interval =
      std::clamp(stream_.stall_timeout / 4, kLeastLookInterval, kMaxLookInterval);
  std::unique_lock lock(look_mutex_);
  while (!closing_) {
    lock.unlock();
    CheckClientCa();
    ReportState();
    lock.lock();
    closed_.wait_for(lock, interval, [this] { return closing_; });
  }
}

absl::Status ServiceHost::Listen(const std::string& address, const TlsOptions& tls,
                                 const ConnectionOptions& connection,
                                 const std::vector<Service*>& services, net::LoopThreads* loops) {
  const absl::StatusOr<net::Address> parsed = net::ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<std::unique_ptr<net::ServerTls>> secured = http2::MakeServerTls(tls, telemetry_);
  if (!secured.ok()) return secured.status();
  tls_ = *std::move(secured);
  std::vector<Service*> all = {&health_};
  all.insert(all.end(), services.begin(), services.end());
  absl::StatusOr<std::unique_ptr<http2::Server>> server = http2::Server::Start(
      *parsed, LimitsOf(stream_, connection, tls), all, SslFrom(tls_.get()), telemetry_, loops);
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  port_ = server_->address().port;
  text_ = server_->address().ToString();
  file_checker_ = std::thread([this] { CheckFiles(); });
  return absl::OkStatus();
}

// All streams have ended when this returns: none waits for a provider. A provider's call that still
// blocks continues in its thread, and then finds its stream closed.
void ServiceHost::Shutdown(milliseconds grace) {
  // Before the lock, so that a second call can shorten the first one's grace.
  registry_.StartDrain(grace);
  std::lock_guard lock(shutdown_mutex_);
  if (server_ == nullptr) return;
  health_.Drain();
  registry_.FinishDrain();
  health_.EndWatches();
  {
    const std::lock_guard look_lock(look_mutex_);
    closing_ = true;
  }
  closed_.notify_all();
  if (file_checker_.joinable()) file_checker_.join();
  server_->Shutdown(kLastCalls);
  server_.reset();
}

}  // namespace cbt::rpc
