// Names, labels and finalizers of COSI's objects (C2, C3, C4).
#ifndef CBT_PROGRAMS_COSI_API_NAMES_H_
#define CBT_PROGRAMS_COSI_API_NAMES_H_

#include <string>
#include <string_view>

#include "programs/cosi/api/objects.h"

namespace cbt::kube::cosi {

inline constexpr std::string_view kDefaultClassAnnotation = "objectstorage.k8s.io/is-default-class";
inline constexpr std::string_view kProvisionerLabel = "objectstorage.k8s.io/provisioner";
inline constexpr std::string_view kPrefixLabel = "objectstorage.k8s.io/bucket-prefix";

// On a BucketAccess: the bucket that the driver was asked for. Revocation works by it once the
// Bucket is gone (S7).
inline constexpr std::string_view kBucketIdAnnotation = "objectstorage.k8s.io/bucket-id";
// On a Secret: the account, and the name of its BucketAccess.
inline constexpr std::string_view kAccountIdAnnotation = "objectstorage.k8s.io/account-id";
inline constexpr std::string_view kAccessAnnotation = "objectstorage.k8s.io/bucket-access";
// On a Secret: the uid of its BucketAccess.
inline constexpr std::string_view kAccessUidLabel = "objectstorage.k8s.io/bucket-access-uid";

// What holds an object until the work of its deletion is done. The text spells two of them in two
// ways (S2): the longer ones are set, both are removed.
inline constexpr std::string_view kRequestFinalizer =
    "objectstorage.k8s.io/bucketrequest-protection";
inline constexpr std::string_view kRequestFinalizerShort =
    "objectstorage.k8s.io/bucketrequest-protect";
inline constexpr std::string_view kAccessRequestFinalizer =
    "objectstorage.k8s.io/bucketaccessrequest-protection";
inline constexpr std::string_view kAccessRequestFinalizerShort =
    "objectstorage.k8s.io/bucketaccessrequest-protect";
inline constexpr std::string_view kBucketFinalizer = "objectstorage.k8s.io/br-protect";
inline constexpr std::string_view kAccessFinalizer = "objectstorage.k8s.io/bar-protect";
// Followed by the name of a BucketAccess; on its Bucket.
inline constexpr std::string_view kAccessorFinalizerPrefix = "objectstorage.k8s.io/ba-";
// Followed by the uid of a Pod; on a BucketAccess.
inline constexpr std::string_view kPodFinalizerPrefix = "objectstorage.k8s.io/pod-";

// From the uid, not from a random number: a controller that was killed makes the same name again
// (S15).
std::string BucketNameOf(const BucketRequest& request);
std::string AccessNameOf(const BucketAccessRequest& request);

// `text` as the value of a label: what labels forbid becomes "-".
std::string LabelValue(std::string_view text);

// The finalizer of this access on its Bucket. Names that make it too long give way to the uid
// (S19).
std::string AccessorFinalizer(const ObjectMeta& access);
std::string PodFinalizer(std::string_view pod_uid);

bool HasFinalizer(const ObjectMeta& meta, std::string_view finalizer);
bool HasAccessors(const ObjectMeta& bucket);
// True if `object` has changed.
bool AddFinalizer(Object& object, std::string_view finalizer);
bool RemoveFinalizer(Object& object, std::string_view finalizer);
bool RemoveAllFinalizers(Object& object);

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_API_NAMES_H_
