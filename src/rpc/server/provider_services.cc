#include "rpc/server/provider_services.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "cbt/version.h"
#include "rpc/contract/identity.h"
#include "rpc/outbound/provider_feed.h"
#include "rpc/server/service_host.h"
#include "rpc/transport/slice_pool.h"

namespace cbt::rpc {
namespace {

ServicePlan PlanOf(const ServerOptions& options) {
  return {.apis = options.apis,
          .access = options.access,
          .base_is_handle = options.base_is_handle,
          .sessions = options.sessions,
          .page_token_key = options.page_token_key.empty()
                                ? absl::StrCat("cbt page tokens of ", options.plugin_name)
                                : options.page_token_key,
          .identity = options.identity,
          .plugin_name = options.plugin_name,
          .vendor_version =
              options.vendor_version.empty() ? std::string(kVersion) : options.vendor_version,
          .stream = options.stream,
          .reflection = options.reflection,
          .telemetry = options.telemetry};
}

}  // namespace

absl::Status CheckServiceOptions(const ServerOptions& options) {
  for (absl::Status status : {CheckStreamOptions(options.stream),
                              CheckApis(options.apis, options.access, options.sessions),
                              CheckPluginName(options.plugin_name)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

ProviderServices::ProviderServices(SnapshotProvider& provider, const ServerOptions& options,
                                   OpenStreams& registry, SmallCalls& small_calls)
    : executor_(options.stream.threads),
      services_(PlanOf(options), Feeds(provider, options.stream), provider, registry, small_calls,
                executor_) {}

FeedFactory ProviderServices::Feeds(SnapshotProvider& provider, const StreamOptions& stream) {
  // What a few streams produce in the time that it takes to send a message.
  constexpr size_t kIdleMessageMemory = 8 * kMiB;
  return
      [this, &provider, stream, pool = SlicePool::Create(stream.message_bytes, kIdleMessageMemory)](
          const Contract& contract, AdmittedRequest request, std::shared_ptr<ServerStream> served) {
        auto producer = std::make_unique<MessageProducer>(contract, provider, std::move(request),
                                                          stream, pool, served->deadline());
        const std::stop_token stop = served->stop_token();
        return std::make_shared<ProviderFeed>(executor_, std::move(producer), std::move(served),
                                              stop);
      };
}

}  // namespace cbt::rpc
