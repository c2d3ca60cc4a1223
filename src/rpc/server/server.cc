#include "cbt/rpc/server.h"

#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "rpc/contract/server_event.h"
#include "rpc/contract/status.h"
#include "rpc/server/provider_services.h"
#include "rpc/server/service_host.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

ServerOptions With(ServerOptions options, const Telemetry& telemetry) {
  options.telemetry = telemetry;
  return options;
}

absl::Status CheckOptions(const ServerOptions& options) {
  if (absl::Status status = CheckServiceOptions(options); !status.ok()) return status;
  return CheckConnectionOptions(options.connection);
}

}  // namespace

class Server::Impl {
 public:
  Impl(SnapshotProvider& provider, const ServerOptions& options)
      : telemetry_(options.telemetry),
        host_(options.stream, telemetry_.get()),
        services_(provider, With(options, telemetry_.get()), host_.registry(),
                  host_.small_calls()) {}

  // Calls refer to the services, which are destroyed first.
  ~Impl() { host_.Shutdown(milliseconds{0}); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Listen(const ServerOptions& options) {
    return host_.Listen(options.listen, options.tls, options.connection, options.stream.max_streams,
                        services_.services());
  }

  ServiceHost& host() noexcept { return host_; }

 private:
  // In order of dependency: the executor's last tasks hold streams, which refer to the host's
  // registry.
  const LimitedTelemetry telemetry_;
  ServiceHost host_;
  ProviderServices services_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(SnapshotProvider& provider,
                                                      const ServerOptions& options) try {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto impl = std::make_unique<Impl>(provider, options);
  if (absl::Status status = impl->Listen(options); !status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
} catch (const std::system_error&) {
  return MakeStatusNoThrow(absl::StatusCode::kResourceExhausted,
                           "threads: the system can't start more");
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() = default;

int Server::port() const noexcept { return impl_->host().port(); }

const std::string& Server::address() const noexcept { return impl_->host().address(); }

void Server::Shutdown(milliseconds grace) { impl_->host().Shutdown(grace); }

size_t Server::open_streams() const noexcept { return impl_->host().registry().open_streams(); }

}  // namespace cbt::rpc
