// What a request means for the store, whatever its revision: what is required, what is refused, and
// the answer.
#ifndef CBT_PROGRAMS_COSI_DRIVER_REQUESTS_H_
#define CBT_PROGRAMS_COSI_DRIVER_REQUESTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/contract/contract.h"
#include "programs/cosi/driver/bucket_store.h"

namespace cbt::cosi {

// Errors of all: INVALID_ARGUMENT that names the field; those of the store.
absl::StatusOr<BucketAnswer> Create(BucketStore& store, Revision revision,
                                    const CreateRequest& request);
absl::StatusOr<BucketAnswer> Find(BucketStore& store, const FindRequest& request);
absl::Status Delete(BucketStore& store, const DeleteRequest& request);
absl::StatusOr<GrantAnswer> Grant(BucketStore& store, Revision revision,
                                  const GrantRequest& request);
absl::Status Revoke(BucketStore& store, const RevokeRequest& request);

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_REQUESTS_H_
