// The types of objects, and where the API server has them. Part of cbt::kube.
#ifndef CBT_KUBE_RESOURCE_H_
#define CBT_KUBE_RESOURCE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/version.h"

namespace cbt::kube {

// A type of object. Holds views, of literals as a rule; a Client needs them only during the call
// that they are passed to.
struct Resource {
  std::string_view group = {};  // empty: the core group
  std::string_view version = {};
  std::string_view plural = {};
  std::string_view kind = {};
  bool namespaced = true;

  // "v1" or "snapshot.storage.k8s.io/v1".
  std::string ApiVersion() const;
  friend bool operator==(const Resource&, const Resource&) = default;
};

inline constexpr Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap", true};
inline constexpr Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};
inline constexpr Resource kPods{"", "v1", "pods", "Pod", true};
inline constexpr Resource kSecrets{"", "v1", "secrets", "Secret", true};
inline constexpr Resource kServiceAccounts{"", "v1", "serviceaccounts", "ServiceAccount", true};
inline constexpr Resource kServices{"", "v1", "services", "Service", true};
inline constexpr Resource kEvents{"", "v1", "events", "Event", true};
inline constexpr Resource kPersistentVolumes{"", "v1", "persistentvolumes", "PersistentVolume",
                                             false};
inline constexpr Resource kPersistentVolumeClaims{"", "v1", "persistentvolumeclaims",
                                                  "PersistentVolumeClaim", true};
inline constexpr Resource kTokenReviews{"authentication.k8s.io", "v1", "tokenreviews",
                                        "TokenReview", false};
inline constexpr Resource kSelfSubjectReviews{"authentication.k8s.io", "v1", "selfsubjectreviews",
                                              "SelfSubjectReview", false};
inline constexpr Resource kSubjectAccessReviews{
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false};
inline constexpr Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease", true};
inline constexpr Resource kRoles{"rbac.authorization.k8s.io", "v1", "roles", "Role", true};
inline constexpr Resource kRoleBindings{"rbac.authorization.k8s.io", "v1", "rolebindings",
                                        "RoleBinding", true};
inline constexpr Resource kClusterRoles{"rbac.authorization.k8s.io", "v1", "clusterroles",
                                        "ClusterRole", false};
inline constexpr Resource kClusterRoleBindings{"rbac.authorization.k8s.io", "v1",
                                               "clusterrolebindings", "ClusterRoleBinding", false};
inline constexpr Resource kCustomResourceDefinitions{
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false};
inline constexpr Resource kVolumeSnapshots{"snapshot.storage.k8s.io", "v1", "volumesnapshots",
                                           "VolumeSnapshot", true};
inline constexpr Resource kVolumeSnapshotContents{
    "snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", "VolumeSnapshotContent", false};
inline constexpr Resource kVolumeSnapshotClasses{
    "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", false};
inline constexpr Resource kSnapshotMetadataServices{
    "cbt.storage.k8s.io", "v1beta1", "snapshotmetadataservices", "SnapshotMetadataService", false};

// The path of an object, or of all objects of the type if `name` is empty, on the API server:
// "/apis/snapshot.storage.k8s.io/v1/namespaces/prod/volumesnapshots/nightly/status". An empty
// `name_space` of a namespaced type means every namespace, and goes with an empty name only.
// Errors: INVALID_ARGUMENT for a part that no object has ("..", "a/b", a namespace for a type
// without namespaces): a request must not reach another object than the one that was meant.
absl::StatusOr<std::string> ResourcePath(const Resource& resource, std::string_view name_space,
                                         std::string_view name = {},
                                         std::string_view subresource = {});

}  // namespace cbt::kube

#endif  // CBT_KUBE_RESOURCE_H_
