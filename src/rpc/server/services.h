// The services of a server or a relay: one for each contract, and the common ones.
#ifndef CBT_RPC_SERVER_SERVICES_H_
#define CBT_RPC_SERVER_SERVICES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cbt/executor.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/service_options.h"
#include "rpc/access/admission.h"
#include "rpc/server/identity_and_health_calls.h"
#include "rpc/server/identity_service.h"
#include "rpc/server/metadata_service.h"
#include "rpc/server/paged_service.h"
#include "rpc/server/reflection_service.h"
#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// `options` with everything set: the contracts of the host, and whether its other services are
// served that are not asked for.
ServiceOptions WithDefaults(ServiceOptions options, Api api, bool others);

// INVALID_ARGUMENT that names the option that is out of range: also for no contract, a duplicate,
// and one whose requirements are missing. `options` have everything set.
absl::Status CheckServiceOptions(const ServiceOptions& options);

// One for each contract, and the common ones but health, without a transport.
class ServiceSet {
 public:
  // `options` have everything set, and are valid. `provider` answers streams, unless there are
  // `feeds` for them, and the paged contract. `registry` and `small_calls` have the same options.
  // All references outlive the set and its calls. Throws std::system_error if threads can't be
  // started.
  ServiceSet(const ServiceOptions& options, SnapshotProvider& provider, StreamRegistry& registry,
             IdentityAndHealthCalls& small_calls, FeedFactory feeds = {});

  const std::vector<Service*>& services() const noexcept { return services_; }

 private:
  FeedFactory ProviderFeeds(SnapshotProvider& provider, const StreamOptions& stream);

  ThreadPool executor_;  // first: the services use it
  std::vector<std::unique_ptr<Admission>> admissions_;
  std::vector<std::unique_ptr<MetadataService>> metadata_;
  std::unique_ptr<PagedService> paged_;
  std::unique_ptr<IdentityService> identity_;
  std::unique_ptr<ReflectionService> reflection_;
  std::vector<Service*> services_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_SERVICES_H_
