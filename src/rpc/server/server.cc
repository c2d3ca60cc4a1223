#include "cbt/rpc/server.h"

#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "rpc/contract/status.h"
#include "rpc/server/service_host.h"
#include "rpc/server/services.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

}  // namespace

class Server::Impl {
 public:
  Impl(SnapshotProvider& provider, const ServiceOptions& options)
      : host_(options),
        services_(host_.Limited(options), provider, host_.registry(), host_.small_calls()) {}

  // Calls refer to the services, which are destroyed first.
  ~Impl() { host_.Shutdown(milliseconds{0}); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Listen(const ServerOptions& options) {
    return host_.Listen(options.listen, options.tls, options.connection, services_.services());
  }

  ServiceHost& host() noexcept { return host_; }

 private:
  // In order of dependency: the executor's last tasks hold streams, which refer to the host's
  // registry.
  ServiceHost host_;
  ServiceSet services_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(SnapshotProvider& provider,
                                                      const ServerOptions& options) try {
  const ServiceOptions service = WithDefaults(options.service, Api::kCsi, true);
  if (absl::Status status = CheckServiceOptions(service); !status.ok()) return status;
  if (absl::Status status = CheckConnectionOptions(options.connection); !status.ok()) return status;
  auto impl = std::make_unique<Impl>(provider, service);
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
