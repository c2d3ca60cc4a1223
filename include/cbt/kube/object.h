// An object of the API server as JSON, the types of objects, and points in time. Part of cbt::kube.
#ifndef CBT_KUBE_OBJECT_H_
#define CBT_KUBE_OBJECT_H_

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/secrets.h"
#include "cbt/version.h"

namespace cbt::kube {

// --- Points in time as Kubernetes writes them.

// UTC. Fractions finer than a microsecond are cut off.
using Time = std::chrono::sys_time<std::chrono::microseconds>;

// Reads RFC 3339: "2024-05-01T10:00:00Z", with or without a fraction, with Z or an offset.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Time> ParseTime(std::string_view text);

// As Time fields are written: whole seconds, "2024-05-01T10:00:00Z". `time`: years 1 to 9999.
std::string FormatTime(Time time);

// As MicroTime fields are written: always six digits, "2024-05-01T10:00:00.000000Z".
std::string FormatMicroTime(Time time);

// --- Types of objects, and where they are on the server.

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

// --- Objects of any type.

// The way to a field, from the object's root: {"spec", "driver"}. Keys may hold any characters, so
// {"metadata", "annotations", "example.com/key"} needs no escapes. In a list, a key is the number
// of an element: {"subjects", "0", "name"}. Holds views: make it where it is used.
class Path {
 public:
  Path(std::initializer_list<std::string_view> keys)  // NOLINT(google-explicit-constructor)
      : keys_(keys) {}
  Path(std::span<const std::string_view> keys)  // NOLINT(google-explicit-constructor)
      : keys_(keys.begin(), keys.end()) {}

  std::span<const std::string_view> keys() const noexcept { return keys_; }
  // For messages: "metadata.annotations[example.com/key]".
  std::string ToString() const;

 private:
  std::vector<std::string_view> keys_;
};

// The fields of `metadata` that are used here.
struct ObjectMeta {
  std::string name = {};
  std::string name_space = {};
  std::string generate_name = {};
  std::string uid = {};
  std::string resource_version = {};  // opaque: compare for equality only
  int64_t generation = 0;
  std::optional<Time> creation_timestamp = {};
  std::optional<Time> deletion_timestamp = {};  // set: the object goes once its finalizers are gone
  std::map<std::string, std::string> labels = {};
  std::map<std::string, std::string> annotations = {};
  std::vector<std::string> finalizers = {};
};

// A JSON object, with every field that it came with: what this library does not know is still there
// when it is written back.
//
// As everywhere in Kubernetes, a field that is absent, null or zero means the same. Readers for
// required fields (String, Int) fail for one that is absent; the others return an empty value. A
// field of another type is an error of every reader, never an empty value.
// Errors of readers: INVALID_ARGUMENT with the path of the field and what was found there; never
// with its value.
//
// A value class: copies are deep and independent. Safe to read from several threads at once. The
// memory of texts is wiped when it is freed, since they may be secrets.
class Object {
 public:
  // {}
  Object();
  // A new object to send. Empty arguments are left out.
  Object(std::string_view api_version, std::string_view kind, std::string_view name_space = {},
         std::string_view name = {});
  ~Object();
  Object(const Object& other);
  Object& operator=(const Object& other);
  // The moved-from object is {}.
  Object(Object&& other) noexcept;
  Object& operator=(Object&& other) noexcept;

  // Reads exactly one JSON object, in UTF-8, at most kMaxDepth deep, none of whose objects has a
  // key twice. Errors: INVALID_ARGUMENT with the mistake, its position where there is one, and no
  // text from there.
  static absl::StatusOr<Object> Parse(std::string_view json);
  static constexpr int kMaxDepth = 64;
  // The same for what anybody may send: at most kMaxRequestValues keys and values. A byte of JSON
  // can take 50 of memory.
  static absl::StatusOr<Object> ParseRequest(std::string_view json);
  static constexpr size_t kMaxRequestValues = 100'000;

  std::string ToJson() const;

  // Equal fields with equal values; the order of keys does not count.
  friend bool operator==(const Object& a, const Object& b);

  // --- Readers.

  bool Has(const Path& path) const;  // present, and not null
  absl::StatusOr<std::string> String(const Path& path) const;
  absl::StatusOr<std::optional<std::string>> OptionalString(const Path& path) const;
  absl::StatusOr<int64_t> Int(const Path& path) const;
  absl::StatusOr<std::optional<int64_t>> OptionalInt(const Path& path) const;
  // The server leaves false out: absent is false.
  absl::StatusOr<bool> Bool(const Path& path) const;
  absl::StatusOr<std::optional<bool>> OptionalBool(const Path& path) const;
  absl::StatusOr<std::optional<Time>> OptionalTime(const Path& path) const;
  absl::StatusOr<std::vector<std::string>> Strings(const Path& path) const;
  absl::StatusOr<std::map<std::string, std::string>> StringMap(const Path& path) const;
  // {"key": ["value", ...]}, as `extra` of users.
  absl::StatusOr<std::map<std::string, std::vector<std::string>>> StringsMap(
      const Path& path) const;
  // Bytes that JSON holds as base64.
  absl::StatusOr<std::string> Bytes(const Path& path) const;
  // A secret string; empty if absent.
  absl::StatusOr<Secret> SecretString(const Path& path) const;
  // A map from names to base64, as `data` of a Secret, decoded.
  absl::StatusOr<Secrets> SecretMap(const Path& path) const;
  // Copies of the values below; {} or no elements if absent.
  absl::StatusOr<Object> Child(const Path& path) const;
  absl::StatusOr<std::vector<Object>> Children(const Path& path) const;
  // The names of the fields of the object there, {} for this one, in their order; also of those
  // that are null. For readers that refuse fields they do not know.
  absl::StatusOr<std::vector<std::string>> FieldNames(const Path& path) const;

  // --- Writers. What is missing on the way is made; what is on the way and is not an object is
  // replaced by one. An element of a list must exist: a path through one that does not is ignored.

  void SetString(const Path& path, std::string_view value);
  void SetInt(const Path& path, int64_t value);
  void SetBool(const Path& path, bool value);
  void SetStrings(const Path& path, const std::vector<std::string>& values);
  void SetStringMap(const Path& path, const std::map<std::string, std::string>& values);
  void SetStringsMap(const Path& path,
                     const std::map<std::string, std::vector<std::string>>& values);
  void SetBytes(const Path& path, std::string_view bytes);  // as base64
  void SetChild(const Path& path, const Object& value);
  void SetChildren(const Path& path, const std::vector<Object>& values);
  void Remove(const Path& path);

  // --- Metadata. Views are valid until the object is written to or destroyed, and empty if the
  // field is absent. In an object from a Client these fields have the right types: it refuses
  // others. In one from Parse(), a field of another type reads as absent; Meta() reports it.

  std::string_view api_version() const noexcept;
  std::string_view kind() const noexcept;
  std::string_view name() const noexcept;
  std::string_view name_space() const noexcept;
  std::string_view uid() const noexcept;
  std::string_view resource_version() const noexcept;
  std::optional<std::string_view> label(std::string_view key) const noexcept;
  std::optional<std::string_view> annotation(std::string_view key) const noexcept;
  // metadata.deletionTimestamp is set.
  bool being_deleted() const noexcept;
  // All of it.
  absl::StatusOr<ObjectMeta> Meta() const;
  // Name, namespace, generateName, uid, resourceVersion, labels, annotations and finalizers, where
  // they are not empty. Other fields of metadata stay as they are.
  void SetMeta(const ObjectMeta& meta);

 private:
  friend class ObjectAccess;
  struct Document;
  std::unique_ptr<Document> document_;  // null: {}
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_OBJECT_H_
