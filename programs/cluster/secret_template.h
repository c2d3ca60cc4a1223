// The secret that a VolumeSnapshotClass names for its driver.
#ifndef CBT_PROGRAMS_CLUSTER_SECRET_TEMPLATE_H_
#define CBT_PROGRAMS_CLUSTER_SECRET_TEMPLATE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/typed_objects.h"

namespace cbt::kube::cluster {

struct SecretName {
  std::string name_space;
  std::string name;
  friend bool operator==(const SecretName&, const SecretName&) = default;
};

// What templates may mention.
struct TemplateValues {
  std::string snapshot_namespace;  // ${volumesnapshot.namespace}
  std::string snapshot_name;       // ${volumesnapshot.name}, in the secret's name only
  std::string content_name;        // ${volumesnapshotcontent.name}
};

// The secret for a snapshot: the parameters csi.storage.k8s.io/snapshotter-secret-name and
// -namespace of its class, filled in. Nothing if the class has neither.
// Errors: INVALID_ARGUMENT if only one is there, one is empty, a template mentions something else,
//         or the result can't be a name. The text names the parameter.
absl::StatusOr<std::optional<SecretName>> SecretOf(const VolumeSnapshotClass& snapshot_class,
                                                   const TemplateValues& values);

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_SECRET_TEMPLATE_H_
