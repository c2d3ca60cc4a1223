#include "rpc/transport/grpc_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/contract/server_event.h"
#include "rpc/transport/grpc_library.h"
#include "rpc/transport/grpc_service.h"
#include "rpc/transport/tls.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

// Requests hold ids, numbers, tokens and secrets; CSI allows 4 KiB for all of them together.
constexpr int kMaxRequestBytes = 64 << 10;
constexpr int kMaxRequestMetadataBytes = 16 << 10;

constexpr int kHandshakeTimeoutMs = 20'000;

// How long gRPC waits for calls left after the drain before it cancels them.
constexpr milliseconds kTransportShutdown{200};
// How long gRPC may then take to close their connections.
constexpr milliseconds kLastWords{800};

// How long a connection may live after its client's certificate was checked.
constexpr milliseconds kCertifiedAge = std::chrono::hours(1);

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

GrpcServer::GrpcServer() = default;
GrpcServer::~GrpcServer() { Shutdown(); }

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const Address& address, const Options& options, const std::vector<Service*>& services) {
  std::unique_ptr<GrpcServer> server(new GrpcServer());
  if (absl::Status status = server->Listen(address, options, services); !status.ok()) {
    return status;
  }
  return server;
}

ConnectionWatch::Owner GrpcServer::WatchOwner(const Options& options,
                                              std::shared_ptr<ClientCa> client_ca) {
  const Telemetry telemetry = options.telemetry;
  return {.overdue = options.overdue,
          .revoked =
              [telemetry, client_ca = std::move(client_ca)] {
                if (client_ca == nullptr) return false;
                const ClientCa::Change change = client_ca->TakeChange();
                if (change == ClientCa::Change::kNone) return false;
                Report(telemetry, change == ClientCa::Change::kChanged
                                      ? ServerEvent::kClientCaChanged
                                      : ServerEvent::kClientCaUnusable);
                return true;
              },
          .state = options.state,
          .cut =
              [telemetry](size_t connections) {
                for (size_t i = 0; i < connections; ++i) {
                  Report(telemetry, ServerEvent::kConnectionCut);
                }
              }};
}

absl::Status GrpcServer::Listen(const Address& address, const Options& options,
                                const std::vector<Service*>& services) {
  address_ = address;
  const TlsOptions& tls = options.tls;
  absl::StatusOr<ServerTls> credentials = ServerTlsOf(tls, options.telemetry);
  if (!credentials.ok()) return credentials.status();
  ConnectionOptions limits = options.connection;
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
  SetLimits(builder, limits, options.max_streams);
  int port = 0;
  builder.AddListeningPort(address_.GrpcTarget(), credentials->credentials, &port);
  for (const Service* const service : services) {
    services_.push_back(std::make_unique<GrpcService>(*service));
    builder.RegisterService(services_.back().get());
  }
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
  watch_ = std::make_unique<ConnectionWatch>(
      address_, options.stall_timeout, WatchOwner(options, std::move(credentials->client_ca)));
  return absl::OkStatus();
}

void GrpcServer::Shutdown() {
  if (server_ == nullptr) return;
  // gRPC waits indefinitely for data that a peer does not read from its socket.
  if (watch_ != nullptr) watch_->CloseAllAfter(kTransportShutdown + kLastWords);
  server_->Shutdown(std::chrono::system_clock::now() + kTransportShutdown);
  // gRPC has closed the socket; only now may another server take its place.
  server_.reset();
  watch_.reset();
  socket_file_.reset();
}

}  // namespace cbt::rpc
