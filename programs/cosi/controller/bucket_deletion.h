// What happens to a bucket when its request is deleted: what its policy says.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_BUCKET_DELETION_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_BUCKET_DELETION_H_

#include <string>

#include "absl/status/status.h"
#include "programs/cosi/controller/part.h"

namespace cbt::kube::cosi {

// The request waits behind its finalizer. The Bucket's own policy counts (C17):
//
//   Retain       the Bucket stays, is unavailable, and loses its request and all finalizers. Those
//                who have access keep it (C18, S7).
//   Delete       the Bucket is deleted. The sidecar asks the driver after the last access is gone
//                (C19).
//   ForceDelete  the same, and all access is removed first; see Buckets (C20).
//
// The request goes after its Bucket (C21, S5). A Bucket that an administrator made is retained
// (C17, C26). Blocks: for workers. Thread safe.
class BucketDeletion {
 public:
  explicit BucketDeletion(const Tools& tools) : tools_(tools) {}

  // `object`: the request, which is being deleted. Errors: worth another try.
  absl::Status Run(const BucketRequest& request, const Object& object);

 private:
  absl::Status Retain(const BucketRequest& request, const Bucket& bucket, const Object& object);
  absl::Status Delete(const BucketRequest& request, const Bucket& bucket);
  absl::Status Release(const Object& object);

  const Tools& tools_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_BUCKET_DELETION_H_
