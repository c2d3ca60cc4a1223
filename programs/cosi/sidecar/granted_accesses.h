// How a BucketAccess is granted, and revoked.
#ifndef CBT_PROGRAMS_COSI_SIDECAR_GRANTED_ACCESSES_H_
#define CBT_PROGRAMS_COSI_SIDECAR_GRANTED_ACCESSES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/sidecar/access_secrets.h"
#include "programs/cosi/sidecar/part.h"

namespace cbt::kube::cosi {

// Only accesses with this driver's label, to Buckets of this driver (issue 80 of today's sidecar).
// Every step is stored before the next, and can be done again (C13):
//
//   1. the Bucket is available, is not being deleted, and has a finalizer for this access
//   2. the Secret is reserved, and the access names it: from here on there is something to revoke
//   3. Grant. The same account never gets a second key, so it may be called twice (C35)
//   4. the Secret is filled, then the access is granted
//
// Revocation does not depend on whether the grant came to its end (issue 79), nor on the Secret
// (issue 83), nor on the Bucket (S7). The finalizer goes after the driver has revoked.
//
// Blocks: for workers. Thread safe.
class GrantedAccesses {
 public:
  explicit GrantedAccesses(const SidecarTools& tools) : tools_(tools), secrets_(tools) {}

  // Errors: worth another try.
  absl::Status Reconcile(const std::string& name);
  // A Secret was deleted, or its access was: the first is made again, the second has something
  // left to be revoked.
  absl::Status ReconcileSecret(const std::string& name);

 private:
  absl::Status Grant(const BucketAccess& access, const Object& object);
  absl::Status GrantOf(const Bucket& bucket, const BucketAccess& access, const Object& object);
  absl::StatusOr<GrantAnswer> CallGrant(const std::string& bucket_id, const BucketAccess& access);
  absl::Status End(const BucketAccess& access, const Object& object);
  absl::Status RevokeOnce(const BucketAccess& access, const std::string& bucket_id);
  bool HasSecret(const BucketAccess& access) const;

  const SidecarTools& tools_;
  AccessSecrets secrets_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_GRANTED_ACCESSES_H_
