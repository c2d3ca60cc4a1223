// What the controller does to a Bucket, beside making it: its accessors, a forced deletion, and all
// that a driver's sidecar would do where there is no driver.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_BUCKETS_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_BUCKETS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/controller/part.h"

namespace cbt::kube::cosi {

// A Bucket has one finalizer for each access to it. It goes with the access, and only then: that
// the access is gone is asked of the API server.
//
// ForceDelete (C20, C25): every access is deleted, which makes the sidecar revoke it. An access
// that is revoked, or was not within ControllerOptions::revoke_time, loses all its finalizers:
// revoked first, then stripped (S6). The sidecar asks the driver to delete the bucket when the last
// access has gone.
//
// Blocks: for workers. Thread safe.
class Buckets {
 public:
  explicit Buckets(const Tools& tools) : tools_(tools) {}

  // Errors: worth another try.
  absl::Status Reconcile(const Key& key);

 private:
  // As the watches have it, nothing is to be done.
  bool IsSettled(const Key& key) const;
  absl::StatusOr<Object> Label(const Bucket& bucket, Object object);
  absl::Status Force(const Bucket& bucket, const Key& key);
  absl::Status Strip(const Bucket& bucket, const BucketAccess& access, const Object& object);
  absl::StatusOr<Object> DropAccessors(const Bucket& bucket, Object object);
  absl::StatusOr<bool> AccessExists(const Bucket& bucket, const std::string& finalizer);
  absl::Status WithoutDriver(const Bucket& bucket, const Object& object);

  const Tools& tools_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_BUCKETS_H_
