// Which Bucket an access request means, and whether it may have it.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_WANTED_BUCKET_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_WANTED_BUCKET_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "programs/cosi/controller/part.h"

namespace cbt::kube::cosi {

// A request names a BucketRequest of its namespace, whose Bucket names that request in turn; or a
// Bucket that allows its namespace (C11, S13). A tenant who names somebody else's Bucket learns no
// more than one who names none. The Bucket is available and not being deleted (C12, S7).
class WantedBucket {
 public:
  explicit WantedBucket(const Tools& tools) : tools_(tools) {}

  // As the API server has it now. Errors: UNAVAILABLE with an Event if it has to wait or is
  // refused; those of the API server.
  absl::StatusOr<Bucket> Find(const BucketAccessRequest& request) const;

  // Absent: the namespace of the Bucket's own request.
  static bool Allows(const Bucket& bucket, std::string_view name_space);

 private:
  absl::StatusOr<Bucket> FindByRequest(const BucketAccessRequest& request) const;
  absl::StatusOr<Bucket> FindByName(const BucketAccessRequest& request) const;

  const Tools& tools_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_WANTED_BUCKET_H_
