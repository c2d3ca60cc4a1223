// How a BucketAccessRequest gets its BucketAccess.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_ACCESS_REQUESTS_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_ACCESS_REQUESTS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/controller/part.h"
#include "programs/cosi/controller/wanted_bucket.h"

namespace cbt::kube::cosi {

// Takes one request as far as it can go. Every step is stored before the next, and can be done
// again (C13):
//
//   1. the Bucket that may be accessed, see WantedBucket; class and policy
//   2. the request's finalizer and label
//   3. the BucketAccess, under a name made of the request's uid; or one that an administrator has
//      made for this request and this Bucket (C14, C31)
//   4. the Bucket's finalizer for this access: from here on no bucket is deleted under it. The
//      text has this step last; the sidecar grants nothing before it.
//   5. the request names the access, for good: one that vanishes later is not made again (C24)
//   6. granted as soon as the sidecar has granted it
//
// A request that is deleted takes its access with it, and goes when that is revoked (C23).
//
// Blocks: for workers. Thread safe.
class AccessRequests {
 public:
  explicit AccessRequests(const Tools& tools) : tools_(tools), bucket_(tools) {}

  // Errors: worth another try.
  absl::Status Reconcile(const Key& key);

 private:
  // As the watches have it, nothing is to be done.
  bool IsSettled(const Key& key) const;
  absl::Status Bind(const BucketAccessRequest& request, const Object& object);
  // The name of the access, which exists when it returns.
  absl::StatusOr<std::string> MakeAccess(const BucketAccessRequest& request,
                                         const BucketAccessClass& one, const std::string& policy,
                                         const Bucket& bucket);
  // Nothing, or the access of an administrator for this request.
  absl::StatusOr<std::optional<std::string>> AdoptAccess(const BucketAccessRequest& request,
                                                         const Bucket& bucket);
  absl::StatusOr<BucketAccessClass> ClassOf(const BucketAccessRequest& request) const;
  absl::StatusOr<std::string> PolicyOf(const BucketAccessRequest& request,
                                       const BucketAccessClass& one) const;
  absl::Status Protect(const std::string& access_name, const Bucket& bucket);
  absl::Status Follow(const BucketAccessRequest& request, const Object& object,
                      const std::string& access_name);
  // Deletes an access of the request. True if it is revoked, gone or of another request.
  absl::StatusOr<bool> EndAccess(const BucketAccessRequest& request, const std::string& name);
  absl::Status End(const BucketAccessRequest& request, const Object& object);

  const Tools& tools_;
  WantedBucket bucket_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_ACCESS_REQUESTS_H_
