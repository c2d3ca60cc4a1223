#include "cbt/rpc/server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/executor.h"
#include "cbt/version.h"
#include "core/absl_view.h"
#include "rpc/contract.h"
#include "rpc/grpc_library.h"
#include "rpc/identity_service.h"
#include "rpc/listen_address.h"
#include "rpc/metadata_service.h"
#include "rpc/socket_file.h"
#include "rpc/stream_registry.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

// Requests are ids, numbers and secrets.
constexpr int kMaxRequestBytes = 1 << 20;
constexpr int kMaxRequestMetadataBytes = 16 << 10;

constexpr size_t kMinMessageBytes = size_t{4} << 10;
constexpr size_t kMaxThreads = 1024;

// Dead peers are found by pings, also while a stream is quiet. Clients may ping as often as that.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinClientPingMs = 30'000;
constexpr int kHandshakeTimeoutMs = 20'000;

// How long gRPC waits for calls that are left after the drain before it cancels them; health
// watches, which never end by themselves, are among them.
constexpr milliseconds kTransportShutdown{200};

absl::Status OutOfRange(std::string_view option, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(option), ": expected ", AbslView(expected)));
}

absl::Status CheckOptions(const ServerOptions& options) {
  const StreamOptions& stream = options.stream;
  if (stream.message_bytes < kMinMessageBytes || stream.message_bytes > kMaxMessageBytes) {
    return OutOfRange("message_bytes", "4 KiB to 1 MiB - 1");
  }
  if (stream.messages_in_flight == 0) return OutOfRange("messages_in_flight", "at least 1");
  if (stream.threads == 0 || stream.threads > kMaxThreads) {
    return OutOfRange("threads", "1 to 1024");
  }
  if (stream.max_streams == 0) return OutOfRange("max_streams", "at least 1");
  if (stream.stall_timeout <= milliseconds{0}) return OutOfRange("stall_timeout", "more than 0");
  const TlsOptions& tls = options.tls;
  if (tls.certificate.empty() != tls.private_key.empty()) {
    return OutOfRange("tls", "a certificate and its key");
  }
  if (tls.certificate.empty() && !tls.client_ca.empty()) {
    return OutOfRange("tls", "a certificate and its key beside the client CA");
  }
  return CheckPluginName(options.plugin_name);
}

std::shared_ptr<grpc::ServerCredentials> Credentials(const TlsOptions& tls) {
  if (tls.certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      tls.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_key_cert_pairs.push_back({tls.private_key, tls.certificate});
  options.pem_root_certs = tls.client_ca;
  return grpc::SslServerCredentials(options);
}

void SetLimits(grpc::ServerBuilder& builder, size_t max_streams) {
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxRequestMetadataBytes);
  // Without this two servers can share a TCP port and each gets some of the clients.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinClientPingMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  // A connection may ask for some more streams than there are, so that those too many are refused
  // with a status instead of waiting in the client.
  const size_t per_connection = std::min<size_t>(max_streams, 1 << 20) + 100;
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(per_connection));
}

}  // namespace

class Server::Impl {
 public:
  Impl(SnapshotProvider& provider, const ServerOptions& options, Address address)
      : registry_(options.stream.max_streams, options.stream.stall_timeout),
        executor_(options.stream.threads),
        metadata_(kCsiContract, provider, options.stream, registry_, executor_),
        identity_(options.plugin_name,
                  options.vendor_version.empty() ? kVersion : options.vendor_version),
        address_(std::move(address)) {}

  absl::Status Listen(const ServerOptions& options) {
    if (address_.is_unix) {
      absl::StatusOr<std::unique_ptr<SocketFile>> file = SocketFile::Claim(address_.path);
      if (!file.ok()) return file.status();
      socket_file_ = *std::move(file);
    } else if (absl::Status status = ProbeTcpAddress(address_); !status.ok()) {
      return status;
    }
    // A switch for the whole process, read when a server is built.
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    SetLimits(builder, options.stream.max_streams);
    int port = 0;
    builder.AddListeningPort(address_.GrpcTarget(), Credentials(options.tls), &port);
    builder.RegisterService(&metadata_);
    builder.RegisterService(&identity_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      // The address was fine a moment ago.
      const std::string where = address_.ToString();
      if (!options.tls.certificate.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "listen: ", where, ": the TLS certificate, key or client CA can't be used"));
      }
      return absl::UnavailableError(absl::StrCat("listen: ", where, ": gRPC can't listen there"));
    }
    if (socket_file_ != nullptr) {
      if (absl::Status status = socket_file_->SetMode(); !status.ok()) return status;
    } else {
      address_.port = static_cast<uint16_t>(port);
    }
    text_ = address_.ToString();
    return absl::OkStatus();
  }

  int port() const noexcept { return address_.port; }
  const std::string& address() const noexcept { return text_; }
  size_t open_streams() const noexcept { return registry_.open_streams(); }

  // Every stream is over when this returns: none of them waits for a provider. A provider's call
  // that blocks meanwhile goes on in its thread and finds its stream closed; the destructor waits
  // for it.
  void Shutdown(milliseconds grace) {
    // Before the lock, so that a second call can shorten the grace of the first.
    registry_.StartDrain(grace);
    std::lock_guard lock(shutdown_mutex_);
    if (server_ == nullptr || shut_down_) return;
    shut_down_ = true;
    if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) {
      health->SetServingStatus(false);
    }
    registry_.FinishDrain();
    server_->Shutdown(std::chrono::system_clock::now() + kTransportShutdown);
    // gRPC has closed the socket; only now another server may take its place.
    socket_file_.reset();
  }

 private:
  // In the order of who needs whom: the executor's last tasks hold streams, those know the
  // registry.
  StreamRegistry registry_;
  ThreadPool executor_;
  MetadataService metadata_;
  IdentityService identity_;
  Address address_;
  std::string text_;
  std::unique_ptr<SocketFile> socket_file_;
  std::unique_ptr<grpc::Server> server_;
  std::mutex shutdown_mutex_;
  bool shut_down_ = false;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(SnapshotProvider& provider,
                                                      const ServerOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  absl::StatusOr<Address> address = ParseAddress(options.listen);
  if (!address.ok()) return address.status();
  KeepGrpcRunning();
  auto impl = std::make_unique<Impl>(provider, options, *std::move(address));
  if (absl::Status status = impl->Listen(options); !status.ok()) {
    impl->Shutdown(milliseconds{0});
    return status;
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { Shutdown(milliseconds{0}); }

int Server::port() const noexcept { return impl_->port(); }

const std::string& Server::address() const noexcept { return impl_->address(); }

void Server::Shutdown(milliseconds grace) { impl_->Shutdown(grace); }

size_t Server::open_streams() const noexcept { return impl_->open_streams(); }

}  // namespace cbt::rpc
