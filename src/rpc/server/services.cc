#include "rpc/server/services.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/page_token.h"

namespace cbt::rpc {
namespace {

std::unique_ptr<Admission> AdmissionFor(Api api, const ServicePlan& plan) {
  switch (api) {
    case Api::kKubernetes:
      return MakeAccessAdmission(plan.access, plan.base_is_handle);
    case Api::kSession:
      return MakeSessionAdmission(*plan.sessions, plan.access);
    default:
      return MakeOpenAdmission();
  }
}

}  // namespace

absl::Status CheckApis(const std::vector<Api>& apis, const AccessControl& access,
                       const SessionStore* sessions) {
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
    if (api == Api::kSession && sessions == nullptr) {
      return absl::InvalidArgumentError("apis: session needs a session store");
    }
  }
  return absl::OkStatus();
}

ServiceSet::ServiceSet(const ServicePlan& plan, const FeedFactory& feeds, SnapshotProvider& pages,
                       OpenStreams& registry, SmallCalls& small_calls, Executor& executor) {
  for (const Api api : plan.apis) {
    if (api == Api::kPaged) {
      paged_ = std::make_unique<PagedService>(pages, PageTokens(plan.page_token_key), plan.stream,
                                              registry, executor, plan.telemetry);
      services_.push_back(paged_.get());
      continue;
    }
    admissions_.push_back(AdmissionFor(api, plan));
    metadata_.push_back(std::make_unique<MetadataService>(
        ContractOf(api), *admissions_.back(), feeds, plan.stream, registry, plan.telemetry));
    services_.push_back(metadata_.back().get());
  }
  // Clients query a plugin's identity first; a sidecar is not a plugin.
  const bool is_plugin = std::any_of(plan.apis.begin(), plan.apis.end(), [](Api api) {
    return api == Api::kCsi || api == Api::kPaged;
  });
  if (is_plugin && plan.identity) {
    identity_ =
        std::make_unique<IdentityService>(plan.plugin_name, plan.vendor_version, small_calls);
    services_.push_back(identity_.get());
  }
  if (!plan.reflection) return;
  std::vector<std::string> names;
  for (const Api api : plan.apis) names.emplace_back(ContractOf(api).service);
  if (identity_ != nullptr) names.emplace_back("csi.v1.Identity");
  reflection_ = std::make_unique<ReflectionService>(std::move(names), plan.stream.stall_timeout);
  services_.push_back(reflection_.get());
}

}  // namespace cbt::rpc
