// What the controller does to a BucketAccess, beside making it.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_ACCESSES_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_ACCESSES_H_

#include "absl/status/status.h"
#include "programs/cosi/controller/part.h"

namespace cbt::kube::cosi {

// An access that an administrator has made gets what the sidecar needs: the label of the Bucket's
// driver, the bucket's ID and the finalizer (C3, C4).
//
// Where the Bucket has no driver, this takes the sidecar's place: a bound access is granted with
// the administrator's credentials (S14), and one that is deleted has nothing to be revoked.
//
// Blocks: for workers. Thread safe.
class Accesses {
 public:
  explicit Accesses(const Tools& tools) : tools_(tools) {}

  // Errors: worth another try.
  absl::Status Reconcile(const Key& key);

 private:
  // As the watches have it, nothing is to be done.
  bool IsSettled(const Key& key) const;
  absl::Status Equip(const Bucket& bucket, const Object& object);
  absl::Status GrantWithoutDriver(const Bucket& bucket, const BucketAccess& access,
                                  const Object& object);
  absl::Status EndWithoutDriver(const Object& object);

  const Tools& tools_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_ACCESSES_H_
