// Which storage handles do the snapshots of a request have?
#ifndef CBT_PROGRAMS_SIDECAR_RESOLVER_H_
#define CBT_PROGRAMS_SIDECAR_RESOLVER_H_

#include <string>

#include "base/fair_limit.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/rpc/access.h"
#include "ops/event_log.h"
#include "programs/cluster/driver.h"
#include "programs/cluster/objects.h"
#include "programs/sidecar/options.h"

namespace cbt::kube::sidecar {

// For the provider of secrets.
struct SnapshotDetails final : public rpc::ResolutionDetails {
  BoundSnapshot target = {};
};

// Follows a VolumeSnapshot to its VolumeSnapshotContent and checks both; for a delta, the base as
// well. A yes may come from what watches have seen; what they do not confirm is asked of the API
// server before a no is said. The number of noes a second is shared fairly by namespaces, and
// beyond that the answer is UNAVAILABLE: names that a tenant invents cost others nothing. Thread
// safe.
class ObjectResolver final : public rpc::SnapshotResolver {
 public:
  // Noes of the API server a second, and at once after a pause.
  static constexpr double kLookupRate = 100;
  static constexpr int kLookupBurst = 200;

  // All must outlive the object, which must live until the answers of `live` have come.
  ObjectResolver(const cluster::Driver& driver, cluster::Objects& watched, cluster::Objects& live,
                 BasePolicy base_policy, MissingCode missing_code, ops::EventLog& log);

  void Resolve(const rpc::SnapshotQuery& query, rpc::Done<rpc::ResolvedSnapshots> done) override;

 private:
  const cluster::Driver& driver_;
  cluster::Objects& watched_;
  cluster::Objects& live_;
  const BasePolicy base_policy_;
  const MissingCode missing_code_;
  ops::EventLog& log_;
  FairLimit lookups_{kLookupRate, kLookupBurst};
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_RESOLVER_H_
