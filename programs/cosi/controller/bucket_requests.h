// How a BucketRequest gets its Bucket.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_BUCKET_REQUESTS_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_BUCKET_REQUESTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/controller/bucket_deletion.h"
#include "programs/cosi/controller/part.h"

namespace cbt::kube::cosi {

// Takes one request as far as it can go. Every step is stored before the next, and can be done
// again (C8):
//
//   1. the class, named or the default one, which must allow the namespace (C6, C7, S13)
//   2. the request's finalizer and label
//   3. the Bucket, under a name made of the request's uid, with the class's fields and its own
//      finalizer (C2, C5)
//   4. the request names the Bucket, for good: one that vanishes later is not made again (issue 229)
//   5. available as soon as the sidecar has made the Bucket available
//
// Where the class has no driver, an administrator's Bucket that names the request takes the place
// of step 3 (C9, C31, S14).
//
// Blocks: for workers. Thread safe.
class BucketRequests {
 public:
  explicit BucketRequests(const Tools& tools) : tools_(tools), deletion_(tools) {}

  // Errors: worth another try.
  absl::Status Reconcile(const Key& key);

 private:
  // As the watches have it, nothing is to be done.
  bool IsSettled(const Key& key) const;
  absl::StatusOr<BucketClass> ClassOf(const BucketRequest& request) const;
  absl::StatusOr<BucketClass> DefaultClass() const;
  absl::Status Bind(const BucketRequest& request, const Object& object);
  // The name of the Bucket, which exists when it returns.
  absl::StatusOr<std::string> MakeBucket(const BucketRequest& request, const BucketClass& one);
  absl::StatusOr<std::string> AdoptBucket(const BucketRequest& request, const BucketClass& one);
  // Status as the Bucket's is.
  absl::Status Follow(const BucketRequest& request, const Object& object,
                      const std::string& bucket_name);

  const Tools& tools_;
  BucketDeletion deletion_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_BUCKET_REQUESTS_H_
