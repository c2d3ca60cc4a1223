// How a Bucket gets its bucket in the backend, and loses it.
#ifndef CBT_PROGRAMS_COSI_SIDECAR_PROVISIONED_BUCKETS_H_
#define CBT_PROGRAMS_COSI_SIDECAR_PROVISIONED_BUCKETS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/sidecar/part.h"

namespace cbt::kube::cosi {

// Only Buckets whose spec.provisioner is this driver:
//
//   made for a request          CreateBucket; its ID and availability are stored in one step (C8)
//   an administrator's, with    is available as it is: the driver is not asked
//     spec.bucketID
//   being deleted               waits for the last accessor (C19). Then DeleteBucket, unless the
//                               policy is Retain or no request has made the bucket (C17); then the
//                               Bucket goes
//
// A Bucket that has an ID is done: one that was retained stays unavailable (C18). The ID of one
// whose creation was not stored before its deletion is asked for again, as nothing else names what
// is to be deleted.
//
// Blocks: for workers. Thread safe.
class ProvisionedBuckets {
 public:
  explicit ProvisionedBuckets(const SidecarTools& tools) : tools_(tools) {}

  // Errors: worth another try.
  absl::Status Reconcile(const std::string& name);

 private:
  absl::Status Provision(const Bucket& bucket, const Object& object);
  absl::Status Store(const Object& object, const std::string& id);
  absl::Status Delete(const Bucket& bucket, const Object& object);

  const SidecarTools& tools_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_PROVISIONED_BUCKETS_H_
