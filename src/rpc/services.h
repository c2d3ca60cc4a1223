// What server and relay have in common in choosing services.
#ifndef CBT_RPC_SERVICES_H_
#define CBT_RPC_SERVICES_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/api.h"
#include "cbt/rpc/session_store.h"
#include "rpc/admission.h"

namespace cbt::rpc {

// INVALID_ARGUMENT for no contract, one twice, and one that lacks what it needs.
absl::Status CheckApis(const std::vector<Api>& apis, const AccessControl& access,
                       const SessionStore* sessions);

// For an API that CheckApis() has passed.
std::unique_ptr<Admission> AdmissionFor(Api api, const AccessControl& access, bool base_is_handle,
                                        SessionStore* sessions);

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVICES_H_
