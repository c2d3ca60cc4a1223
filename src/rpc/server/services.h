// The services of a server or a relay: one for each contract, and the common ones.
#ifndef CBT_RPC_SERVER_SERVICES_H_
#define CBT_RPC_SERVER_SERVICES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cbt/executor.h"
#include "cbt/provider.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/api.h"
#include "cbt/rpc/server.h"
#include "cbt/rpc/session_store.h"
#include "cbt/rpc/telemetry.h"
#include "rpc/access/admission.h"
#include "rpc/server/identity_service.h"
#include "rpc/server/metadata_service.h"
#include "rpc/server/open_streams.h"
#include "rpc/server/paged_service.h"
#include "rpc/server/reflection_service.h"
#include "rpc/server/small_calls.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// INVALID_ARGUMENT for no contract, a duplicate, and one whose requirements are missing.
absl::Status CheckApis(const std::vector<Api>& apis, const AccessControl& access,
                       const SessionStore* sessions);

// The options of servers and relays that concern services.
struct ServicePlan {
  std::vector<Api> apis;  // valid by CheckApis()
  AccessControl access;
  bool base_is_handle = true;
  SessionStore* sessions = nullptr;
  std::string page_token_key;
  bool identity = true;  // of a plugin; sidecars have none
  std::string plugin_name;
  std::string vendor_version;
  StreamOptions stream;
  bool reflection = true;
  Telemetry telemetry;
};

class ServiceSet {
 public:
  // `feeds` creates the feeds of streams; `pages` answers the paged contract, on `executor`. All
  // references must outlive the set.
  ServiceSet(const ServicePlan& plan, const FeedFactory& feeds, SnapshotProvider& pages,
             OpenStreams& registry, SmallCalls& small_calls, Executor& executor);

  const std::vector<Service*>& services() const noexcept { return services_; }

 private:
  std::vector<std::unique_ptr<Admission>> admissions_;
  std::vector<std::unique_ptr<MetadataService>> metadata_;
  std::unique_ptr<PagedService> paged_;
  std::unique_ptr<IdentityService> identity_;
  std::unique_ptr<ReflectionService> reflection_;
  std::vector<Service*> services_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_SERVICES_H_
