#include "cbt/rpc/server.h"

#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/executor.h"
#include "cbt/version.h"
#include "rpc/contract/status.h"
#include "rpc/outbound/provider_feed.h"
#include "rpc/server/service_host.h"
#include "rpc/server/services.h"
#include "rpc/transport/slice_pool.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

absl::Status CheckOptions(const ServerOptions& options) {
  for (absl::Status status :
       {CheckStreamOptions(options.stream), CheckConnectionOptions(options.connection),
        CheckApis(options.apis, options.access, options.sessions),
        CheckPluginName(options.plugin_name)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

ServicePlan PlanOf(const ServerOptions& options) {
  return {.apis = options.apis,
          .access = options.access,
          .base_is_handle = options.base_is_handle,
          .sessions = options.sessions,
          .page_token_key = options.page_token_key.empty()
                                ? absl::StrCat("cbt page tokens of ", options.plugin_name)
                                : options.page_token_key,
          .plugin_name = options.plugin_name,
          .vendor_version =
              options.vendor_version.empty() ? std::string(kVersion) : options.vendor_version,
          .stream = options.stream,
          .reflection = options.reflection,
          .telemetry = options.telemetry};
}

}  // namespace

class Server::Impl {
 public:
  Impl(SnapshotProvider& provider, const ServerOptions& options)
      : host_(options.stream, options.telemetry),
        executor_(options.stream.threads),
        services_(PlanOf(options), Feeds(provider, options.stream), provider, host_.registry(),
                  host_.small_calls(), executor_) {}

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
  FeedFactory Feeds(SnapshotProvider& provider, const StreamOptions& stream) {
    // What a few streams produce in the time that it takes to send a message.
    constexpr size_t kIdleMessageMemory = size_t{8} << 20;
    return [this, &provider, stream,
            pool = SlicePool::Create(stream.message_bytes, kIdleMessageMemory)](
               const Contract& contract, AdmittedRequest request,
               std::shared_ptr<ServerStream> served) {
      auto producer = std::make_unique<MessageProducer>(contract, provider, std::move(request),
                                                        stream, pool, served->deadline());
      const std::stop_token stop = served->stop_token();
      return std::make_shared<ProviderFeed>(executor_, std::move(producer), std::move(served),
                                            stop);
    };
  }

  // In order of dependency: the executor's last tasks hold streams, which refer to the host's
  // registry.
  ServiceHost host_;
  ThreadPool executor_;
  ServiceSet services_;
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
