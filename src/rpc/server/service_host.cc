#include "rpc/server/service_host.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
#include "rpc/contract/server_event.h"
#include "rpc/transport/grpc_library.h"
#include "rpc/transport/tls.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

// Requests hold ids, numbers, tokens and secrets; CSI allows 4 KiB for all of them together.
constexpr int kMaxRequestBytes = 64 << 10;
constexpr int kMaxRequestMetadataBytes = 16 << 10;

constexpr size_t kMinMessageBytes = size_t{4} << 10;
constexpr size_t kMaxThreads = 1024;

constexpr int kHandshakeTimeoutMs = 20'000;

// How long gRPC waits for calls left after the drain before it cancels them.
constexpr milliseconds kTransportShutdown{200};
// How long gRPC may then take to close their connections.
constexpr milliseconds kLastWords{800};

// How long a connection may live after its client's certificate was checked.
constexpr milliseconds kCertifiedAge = std::chrono::hours(1);

absl::Status OutOfRange(std::string_view option, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(option), ": expected ", AbslView(expected)));
}

int Milliseconds(milliseconds time) {
  return static_cast<int>(std::min<int64_t>(time.count(), std::numeric_limits<int>::max()));
}

// Keeps gRPC from adding its own health service if the program has enabled that.
class OwnHealth final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* arguments) override {
    arguments->SetPointer(grpc::kHealthCheckServiceInterfaceArg, nullptr);
  }
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*) override {}
};

void SetLimits(grpc::ServerBuilder& builder, const ConnectionOptions& connection,
               size_t max_streams) {
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  // A message that is decompressed before its size is checked can have any size. Without the
  // decompressing filter, gRPC refuses compressed messages with UNIMPLEMENTED, and lists what it
  // accepts.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  for (const grpc_compression_algorithm packed : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(packed, false);
  }
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxRequestMetadataBytes);
  // Otherwise two servers could share a TCP port, and each would get some of the clients.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(connection.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(connection.keepalive_timeout));
  // Even without open calls: gRPC 1.51 sometimes misses the end of a connection that is reset
  // together with its last call, and would leak its socket.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(connection.min_client_ping));
  if (connection.idle_time.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(connection.idle_time));
  }
  if (connection.max_age.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(connection.max_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                               Milliseconds(connection.max_age));
  }
  // Requests are small: there is no need to measure bandwidth and grow windows.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  // A connection may open some more streams than are allowed, so that the excess is refused with a
  // status instead of waiting in the client.
  const size_t per_connection = std::min<size_t>(max_streams, 1 << 20) + 100;
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(per_connection));
  if (connection.memory_quota > 0) {
    grpc::ResourceQuota quota("cbt");
    quota.Resize(connection.memory_quota);
    builder.SetResourceQuota(quota);
  }
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
  if (connection.idle_time < milliseconds{0}) return OutOfRange("idle_time", "0 or more");
  if (connection.max_age < milliseconds{0}) return OutOfRange("max_age", "0 or more");
  return absl::OkStatus();
}

ServiceHost::ServiceHost(const StreamOptions& options, const Telemetry& telemetry)
    : telemetry_(telemetry),
      stall_timeout_(options.stall_timeout),
      registry_(options.max_streams, options.stall_timeout, options.total_time),
      small_calls_(options.stall_timeout, telemetry),
      health_(small_calls_, options.stall_timeout, telemetry) {}

ConnectionWatch::Owner ServiceHost::WatchOwner(std::shared_ptr<ClientCa> client_ca) {
  return {.overdue =
              [this] {
                return registry_.Count().overdue + small_calls_.Count().overdue +
                           health_.Count().overdue >
                       0;
              },
          .revoked =
              [this, client_ca = std::move(client_ca)] {
                if (client_ca == nullptr) return false;
                const ClientCa::Change change = client_ca->TakeChange();
                if (change == ClientCa::Change::kNone) return false;
                Report(telemetry_, change == ClientCa::Change::kChanged
                                       ? ServerEvent::kClientCaChanged
                                       : ServerEvent::kClientCaUnusable);
                return true;
              },
          .state =
              [this](size_t connections) {
                if (telemetry_.observer == nullptr) return;
                const OpenStreams::Counts streams = registry_.Count();
                const OpenStreams::Counts small = small_calls_.Count();
                const OpenStreams::Counts watches = health_.Count();
                telemetry_.observer->OnState(
                    {.connections = connections,
                     .streams = streams.open,
                     .waiting = streams.waiting,
                     .small_calls = small.open,
                     .health_watches = watches.open,
                     .overdue = streams.overdue + small.overdue + watches.overdue});
              },
          .cut =
              [this](size_t connections) {
                for (size_t i = 0; i < connections; ++i) {
                  Report(telemetry_, ServerEvent::kConnectionCut);
                }
              }};
}

absl::Status ServiceHost::Listen(const std::string& address, const TlsOptions& tls,
                                 const ConnectionOptions& connection, size_t max_streams,
                                 const std::vector<grpc::Service*>& services) {
  absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  address_ = *std::move(parsed);
  absl::StatusOr<ServerTls> credentials = ServerTlsOf(tls, telemetry_);
  if (!credentials.ok()) return credentials.status();
  ConnectionOptions limits = connection;
  if (limits.max_age.count() == 0 && !(tls.client_ca.empty() && tls.client_ca_file.empty())) {
    limits.max_age = kCertifiedAge;
  }
  KeepGrpcRunning();
  if (address_.is_unix) {
    absl::StatusOr<std::unique_ptr<SocketFile>> file = SocketFile::Claim(address_.path);
    if (!file.ok()) return file.status();
    socket_file_ = *std::move(file);
  } else if (absl::Status status = ProbeTcpAddress(address_); !status.ok()) {
    return status;
  }
  grpc::ServerBuilder builder;
  builder.SetOption(std::make_unique<OwnHealth>());
  builder.RegisterService(&health_);
  SetLimits(builder, limits, max_streams);
  int port = 0;
  builder.AddListeningPort(address_.GrpcTarget(), credentials->credentials, &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    // The address and the certificates have already been checked.
    return absl::UnavailableError(
        absl::StrCat("listen: ", address_.ToString(), ": gRPC can't listen on this address"));
  }
  if (socket_file_ != nullptr) {
    if (absl::Status status = socket_file_->SetMode(); !status.ok()) return status;
  } else {
    address_.port = static_cast<uint16_t>(port);
  }
  text_ = address_.ToString();
  watch_ = std::make_unique<ConnectionWatch>(address_, stall_timeout_,
                                             WatchOwner(std::move(credentials->client_ca)));
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
  // gRPC waits indefinitely for data that a peer does not read from its socket.
  if (watch_ != nullptr) watch_->CloseAllAfter(kTransportShutdown + kLastWords);
  server_->Shutdown(std::chrono::system_clock::now() + kTransportShutdown);
  // gRPC has closed the socket; only now may another server take its place.
  server_.reset();
  watch_.reset();
  socket_file_.reset();
}

}  // namespace cbt::rpc
