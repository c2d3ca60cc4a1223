#include "rpc/server/services.h"

#include <algorithm>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "cbt/version.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/identity.h"
#include "rpc/contract/resumption.h"
#include "rpc/server/message_producer.h"
#include "rpc/server/provider_feed.h"
#include "rpc/server/service_host.h"
#include "rpc/transport/slice_pool.h"

namespace cbt::rpc {
namespace {

std::unique_ptr<Admission> AdmissionFor(Api api, const ServiceOptions& options) {
  switch (api) {
    case Api::kKubernetes:
      return MakeAccessAdmission(options.access, options.base_is_handle);
    case Api::kSession:
      return MakeSessionAdmission(*options.sessions, options.access);
    default:
      return MakeOpenAdmission();
  }
}

absl::Status CheckApis(const ServiceOptions& options) {
  const std::vector<Api>& apis = *options.apis;
  const AccessControl& access = options.access;
  if (apis.empty()) return absl::InvalidArgumentError("apis: expected at least one");
  for (const Api api : apis) {
    if (std::count(apis.begin(), apis.end(), api) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("apis: ", AbslView(ApiName(api)), " is listed twice"));
    }
    if (api == Api::kKubernetes && (access.authenticator == nullptr ||
                                    access.authorizer == nullptr || access.resolver == nullptr)) {
      return absl::InvalidArgumentError(
          "apis: kubernetes needs an authenticator, an authorizer and a resolver");
    }
    if (api == Api::kSession && options.sessions == nullptr) {
      return absl::InvalidArgumentError("apis: session needs a session store");
    }
  }
  return absl::OkStatus();
}

}  // namespace

ServiceOptions WithDefaults(ServiceOptions options, Api api, bool others) {
  if (!options.apis.has_value()) options.apis = {api};
  options.identity = options.identity.value_or(others);
  options.reflection = options.reflection.value_or(others);
  if (options.vendor_version.empty()) options.vendor_version = kVersion;
  if (options.page_token_key.empty()) {
    options.page_token_key = absl::StrCat("cbt page tokens of ", options.plugin_name);
  }
  return options;
}

absl::Status CheckServiceOptions(const ServiceOptions& options) {
  for (absl::Status status : {CheckStreamOptions(options.stream), CheckApis(options),
                              CheckPluginName(options.plugin_name)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

ServiceSet::ServiceSet(const ServiceOptions& options, SnapshotProvider& provider,
                       StreamRegistry& registry, IdentityAndHealthCalls& small_calls,
                       FeedFactory feeds)
    : executor_(options.stream.threads) {
  if (!feeds) feeds = ProviderFeeds(provider, options.stream);
  for (const Api api : *options.apis) {
    if (api == Api::kPaged) {
      paged_ =
          std::make_unique<PagedService>(provider, PageTokens(options.page_token_key),
                                         options.stream, registry, executor_, options.telemetry);
      services_.push_back(paged_.get());
      continue;
    }
    admissions_.push_back(AdmissionFor(api, options));
    metadata_.push_back(std::make_unique<MetadataService>(
        ContractOf(api), *admissions_.back(), feeds, options.stream, registry, options.telemetry));
    services_.push_back(metadata_.back().get());
  }
  // Clients query a plugin's identity first; a sidecar is not a plugin.
  const bool is_plugin = std::any_of(options.apis->begin(), options.apis->end(), [](Api api) {
    return api == Api::kCsi || api == Api::kPaged;
  });
  if (is_plugin && *options.identity) {
    identity_ =
        std::make_unique<IdentityService>(options.plugin_name, options.vendor_version, small_calls);
    services_.push_back(identity_.get());
  }
  if (!*options.reflection) return;
  std::vector<std::string> names;
  for (const Api api : *options.apis) names.emplace_back(ContractOf(api).service);
  if (identity_ != nullptr) names.emplace_back("csi.v1.Identity");
  reflection_ = std::make_unique<ReflectionService>(std::move(names), options.stream.stall_timeout);
  services_.push_back(reflection_.get());
}

FeedFactory ServiceSet::ProviderFeeds(SnapshotProvider& provider, const StreamOptions& stream) {
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
