// Where buckets and accounts are.
#ifndef CBT_PROGRAMS_COSI_DRIVER_BUCKET_STORE_H_
#define CBT_PROGRAMS_COSI_DRIVER_BUCKET_STORE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/contract/messages.h"
#include "programs/cosi/driver/access_rules.h"

namespace cbt::cosi {

// What an account may do with a bucket.
struct BucketAccess {
  std::string bucket_id = {};
  AccessRules rules = {};
};

// Thread-safe; calls wait for the backend. Every call may be repeated and then has the same result.
// Errors of all: UNAVAILABLE the backend can't be reached; ABORTED another call is at the same
// bucket or account; PERMISSION_DENIED, UNAUTHENTICATED the backend refuses the driver.
class BucketStore {
 public:
  virtual ~BucketStore() = default;

  // How clients reach the buckets.
  virtual S3Info info() const = 0;

  // Accounts are made by hand, so an access class may name one.
  virtual bool has_fixed_accounts() const { return false; }

  // A bucket with this name, which is its ID. Errors: ALREADY_EXISTS if it was made with other
  // parameters, or not by this driver; INVALID_ARGUMENT for a name or parameters that can't be.
  virtual absl::Status Create(const std::string& name, const Parameters& parameters) = 0;

  // OK if the bucket exists. Errors: NOT_FOUND.
  virtual absl::Status Find(const std::string& bucket_id) = 0;

  // The bucket with all that is in it; OK if it is gone. Errors: FAILED_PRECONDITION if this driver
  // did not create it.
  virtual absl::Status Delete(const std::string& bucket_id) = 0;

  // The keys of the account, always the same ones; it may do what `access` says. Errors: NOT_FOUND
  // no such bucket; ALREADY_EXISTS it has other access to one of the buckets; RESOURCE_EXHAUSTED
  // the bucket's policy is full; PERMISSION_DENIED the account administers the
  // backend.
  virtual absl::StatusOr<S3Keys> Grant(const std::string& account,
                                       const std::vector<BucketAccess>& access) = 0;

  // The account has no access to these buckets any more; OK if it or they are gone.
  virtual absl::Status Revoke(const std::string& account,
                              const std::vector<std::string>& bucket_ids) = 0;
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_BUCKET_STORE_H_
