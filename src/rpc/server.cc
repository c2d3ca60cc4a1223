#include "cbt/rpc/server.h"

#include <memory>
#include <utility>

#include "cbt/executor.h"
#include "cbt/version.h"
#include "rpc/admission.h"
#include "rpc/contract.h"
#include "rpc/identity_service.h"
#include "rpc/metadata_service.h"
#include "rpc/paged_service.h"
#include "rpc/provider_feed.h"
#include "rpc/reflection_service.h"
#include "rpc/service_host.h"
#include "rpc/services.h"
#include "rpc/slice_pool.h"

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

std::string PageTokenKey(const ServerOptions& options) {
  if (!options.page_token_key.empty()) return options.page_token_key;
  return "cbt page tokens of " + options.plugin_name;
}

}  // namespace

class Server::Impl {
 public:
  Impl(SnapshotProvider& provider, const ServerOptions& options)
      : host_(options.stream),
        executor_(options.stream.threads),
        identity_(options.plugin_name,
                  options.vendor_version.empty() ? kVersion : options.vendor_version) {
    // What a few streams turn over in the time that a message takes to be sent.
    constexpr size_t kIdleMessageMemory = size_t{8} << 20;
    const FeedFactory feeds =
        [this, &provider, stream = options.stream,
         pool = SlicePool::Create(options.stream.message_bytes, kIdleMessageMemory)](
            const Contract& contract, AdmittedRequest request,
            std::shared_ptr<StreamReactor> reactor) {
          auto producer = std::make_unique<StreamProducer>(contract, provider, std::move(request),
                                                           stream, pool, reactor->deadline());
          const std::stop_token stop = reactor->stop_token();
          return std::make_shared<ProviderFeed>(executor_, std::move(producer), std::move(reactor),
                                                stop);
        };
    for (const Api api : options.apis) {
      if (api == Api::kPaged) {
        paged_ = std::make_unique<PagedService>(provider, PageTokens(PageTokenKey(options)),
                                                options.stream, host_.registry(), executor_,
                                                options.telemetry);
        services_.push_back(paged_.get());
        continue;
      }
      admissions_.push_back(
          AdmissionFor(api, options.access, options.base_is_handle, options.sessions));
      metadata_.push_back(std::make_unique<MetadataService>(ContractOf(api), *admissions_.back(),
                                                            feeds, options.stream, host_.registry(),
                                                            options.telemetry));
      services_.push_back(metadata_.back().get());
    }
    services_.push_back(&identity_);
    if (options.reflection) {
      reflection_ = std::make_unique<ReflectionService>(options.apis);
      services_.push_back(reflection_.get());
    }
  }

  absl::Status Listen(const ServerOptions& options) {
    return host_.Listen(options.listen, options.tls, options.connection, options.stream.max_streams,
                        services_);
  }

  ServiceHost& host() noexcept { return host_; }

 private:
  // In the order of who needs whom: the executor's last tasks hold streams, those know the host's
  // registry.
  ServiceHost host_;
  ThreadPool executor_;
  std::vector<std::unique_ptr<Admission>> admissions_;
  std::vector<std::unique_ptr<MetadataService>> metadata_;
  std::unique_ptr<PagedService> paged_;
  IdentityService identity_;
  std::unique_ptr<ReflectionService> reflection_;
  std::vector<grpc::Service*> services_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(SnapshotProvider& provider,
                                                      const ServerOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto impl = std::make_unique<Impl>(provider, options);
  if (absl::Status status = impl->Listen(options); !status.ok()) {
    impl->host().Shutdown(milliseconds{0});
    return status;
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { Shutdown(milliseconds{0}); }

int Server::port() const noexcept { return impl_->host().port(); }

const std::string& Server::address() const noexcept { return impl_->host().address(); }

void Server::Shutdown(milliseconds grace) { impl_->host().Shutdown(grace); }

size_t Server::open_streams() const noexcept { return impl_->host().registry().open_streams(); }

}  // namespace cbt::rpc
