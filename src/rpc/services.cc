#include "rpc/services.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/absl_view.h"

namespace cbt::rpc {

absl::Status CheckApis(const std::vector<Api>& apis, const AccessControl& access,
                       const SessionStore* sessions) {
  if (apis.empty()) return absl::InvalidArgumentError("apis: expected at least one");
  for (const Api api : apis) {
    if (std::count(apis.begin(), apis.end(), api) > 1) {
      return absl::InvalidArgumentError(absl::StrCat("apis: ", AbslView(ApiName(api)), " twice"));
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

std::unique_ptr<Admission> AdmissionFor(Api api, const AccessControl& access, bool base_is_handle,
                                        SessionStore* sessions) {
  switch (api) {
    case Api::kKubernetes:
      return MakeAccessAdmission(access, base_is_handle);
    case Api::kSession:
      return MakeSessionAdmission(*sessions, access);
    default:
      return MakeOpenAdmission();
  }
}

}  // namespace cbt::rpc
