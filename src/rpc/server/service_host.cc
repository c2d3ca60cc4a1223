#include "rpc/server/service_host.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
#include "cbt/units.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMinMessageBytes = 4 * kKiB;
constexpr size_t kMaxThreads = 1024;

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
      max_streams_(options.stream.max_streams),
      stall_timeout_(options.stream.stall_timeout),
      registry_(max_streams_, stall_timeout_, options.stream.total_time),
      small_calls_(stall_timeout_, telemetry_),
      health_(small_calls_, stall_timeout_, telemetry_) {}

ServiceOptions ServiceHost::Limited(ServiceOptions options) const {
  options.telemetry = telemetry_;
  return options;
}

void ServiceHost::ReportState(const http2::Server& server) const {
  if (telemetry_.observer == nullptr) return;
  const OpenStreams::Counts streams = registry_.Count();
  const OpenStreams::Counts small = small_calls_.Count();
  const OpenStreams::Counts watches = health_.Count();
  telemetry_.observer->OnState({.connections = server.connections(),
                                .streams = streams.open,
                                .waiting = server.waiting(),
                                .small_calls = small.open,
                                .health_watches = watches.open,
                                .overdue = streams.overdue + small.overdue + watches.overdue,
                                .memory = server.memory(),
                                .accepted = server.accepted(),
                                .received = server.traffic().received.load(),
                                .sent = server.traffic().sent.load(),
                                .resets = server.traffic().resets.load()});
}

absl::Status ServiceHost::Listen(const std::string& address, const TlsOptions& tls,
                                 const ConnectionOptions& connection,
                                 const std::vector<Service*>& services, http2::LoopThreads* loops) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  std::vector<Service*> all = {&health_};
  all.insert(all.end(), services.begin(), services.end());
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Start(*parsed,
                      {.tls = tls,
                       .connection = connection,
                       .max_streams = max_streams_,
                       .stall_timeout = stall_timeout_,
                       .telemetry = telemetry_,
                       .state = [this](const http2::Server& server) { ReportState(server); }},
                      all, loops);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  port_ = listener_->address().port;
  text_ = listener_->address().ToString();
  return absl::OkStatus();
}

// All streams have ended when this returns: none waits for a provider. A provider's call that still
// blocks continues in its thread, and then finds its stream closed.
void ServiceHost::Shutdown(milliseconds grace) {
  // Before the lock, so that a second call can shorten the first one's grace.
  registry_.StartDrain(grace);
  std::lock_guard lock(shutdown_mutex_);
  if (listener_ == nullptr) return;
  health_.Drain();
  registry_.FinishDrain();
  health_.EndWatches();
  listener_->Shutdown();
  listener_.reset();
}

}  // namespace cbt::rpc
