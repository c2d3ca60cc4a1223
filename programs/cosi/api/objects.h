// The objects of the proposal's first revision: objectstorage.k8s.io/v1alpha1.
//
// Statements C1 to C40 and slips S1 to S21: docs/reference/cosi.md.
#ifndef CBT_PROGRAMS_COSI_API_OBJECTS_H_
#define CBT_PROGRAMS_COSI_API_OBJECTS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"

namespace cbt::kube::cosi {

inline constexpr std::string_view kGroup = "objectstorage.k8s.io";

inline constexpr Resource kBucketRequests{kGroup, "v1alpha1", "bucketrequests", "BucketRequest",
                                          true};
inline constexpr Resource kBuckets{kGroup, "v1alpha1", "buckets", "Bucket", false};
inline constexpr Resource kBucketClasses{kGroup, "v1alpha1", "bucketclasses", "BucketClass", false};
inline constexpr Resource kBucketAccessRequests{kGroup, "v1alpha1", "bucketaccessrequests",
                                                "BucketAccessRequest", true};
inline constexpr Resource kBucketAccesses{kGroup, "v1alpha1", "bucketaccesses", "BucketAccess",
                                          false};
inline constexpr Resource kBucketAccessClasses{kGroup, "v1alpha1", "bucketaccessclasses",
                                               "BucketAccessClass", false};

// Only the Bucket's own counts.
inline constexpr std::string_view kRetain = "Retain";
inline constexpr std::string_view kDelete = "Delete";
inline constexpr std::string_view kForceDelete = "ForceDelete";

// A request, or an account of the cluster. The uid is empty where it is not known, and is not part
// of a reference to a service account.
struct Reference {
  std::string name = {};
  std::string name_space = {};
  std::string uid = {};

  bool empty() const noexcept { return name.empty(); }
};

// What a user creates to get a bucket.
struct BucketRequest {
  static constexpr Resource kResource = kBucketRequests;

  ObjectMeta meta = {};
  std::string prefix = {};
  std::string class_name = {};   // empty: the default class
  std::string bucket_name = {};  // status; empty: not bound yet
  bool available = false;        // status

  static absl::StatusOr<BucketRequest> Decode(const Object& object);
};

// A bucket of the backend.
struct Bucket {
  static constexpr Resource kResource = kBuckets;

  ObjectMeta meta = {};
  std::string provisioner = {};  // empty: there is no driver
  std::string deletion_policy = {};
  std::string class_name = {};
  Reference request = {};  // empty: made by an administrator, or retained
  bool has_allowed_namespaces = false;
  std::vector<std::string> allowed_namespaces = {};
  std::string given_id = {};  // spec.bucketID: of a bucket that existed before
  Object protocol = {};
  std::map<std::string, std::string> parameters = {};
  bool available = false;      // status
  std::string bucket_id = {};  // status

  static absl::StatusOr<Bucket> Decode(const Object& object);
  // Without status.
  Object Encode() const;

  // The backend's name, or empty.
  const std::string& id() const noexcept { return bucket_id.empty() ? given_id : bucket_id; }
};

// What an administrator offers to users.
struct BucketClass {
  static constexpr Resource kResource = kBucketClasses;

  ObjectMeta meta = {};
  std::string provisioner = {};
  std::string deletion_policy = {};
  bool has_allowed_namespaces = false;
  std::vector<std::string> allowed_namespaces = {};
  Object protocol = {};
  std::map<std::string, std::string> parameters = {};

  static absl::StatusOr<BucketClass> Decode(const Object& object);

  // The annotation is there, and not "false" (C6).
  bool is_default() const;
  bool Allows(std::string_view name_space) const;
};

// What a user creates to get access to a bucket.
struct BucketAccessRequest {
  static constexpr Resource kResource = kBucketAccessRequests;

  ObjectMeta meta = {};
  std::string class_name = {};
  std::string service_account = {};
  std::string request_name = {};  // one of these two
  std::string bucket_name = {};
  std::string access_name = {};  // status; empty: not bound yet
  bool granted = false;          // status

  static absl::StatusOr<BucketAccessRequest> Decode(const Object& object);
};

// An account's access to a bucket.
struct BucketAccess {
  static constexpr Resource kResource = kBucketAccesses;

  ObjectMeta meta = {};
  std::string bucket_name = {};
  Reference request = {};
  Reference service_account = {};
  std::string wanted_account = {};   // spec.accountID
  Reference given_credentials = {};  // spec.credentials
  std::string policy = {};           // spec.policyActionsConfigMapData
  std::map<std::string, std::string> parameters = {};
  bool granted = false;         // status
  std::string account_id = {};  // status
  Reference credentials = {};   // status

  static absl::StatusOr<BucketAccess> Decode(const Object& object);
  // Without status.
  Object Encode() const;

  // What the driver calls the account (S8).
  const std::string& account_name() const noexcept {
    return wanted_account.empty() ? meta.name : wanted_account;
  }
};

struct BucketAccessClass {
  static constexpr Resource kResource = kBucketAccessClasses;

  ObjectMeta meta = {};
  Reference policy = {};  // a ConfigMap
  std::map<std::string, std::string> parameters = {};

  static absl::StatusOr<BucketAccessClass> Decode(const Object& object);
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_API_OBJECTS_H_
