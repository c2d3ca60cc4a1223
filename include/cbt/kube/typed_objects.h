// Types of objects as structs: snapshots, reviews of users and their rights, secrets, config maps and
// leases. Part of cbt::kube.
//
// A status, and every field of it, may be absent: a snapshot that no controller has seen yet has
// none. Absent fields are unset here; they never have a default.
#ifndef CBT_KUBE_TYPED_OBJECTS_H_
#define CBT_KUBE_TYPED_OBJECTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "cbt/secrets.h"
#include "cbt/version.h"

namespace cbt::kube {

// --- Snapshots of volumes.

// A snapshot as its user sees it.
struct VolumeSnapshot {
  static constexpr Resource kResource = kVolumeSnapshots;

  ObjectMeta meta = {};
  // One of the two: the claim that it was taken from, or the content that existed before.
  std::optional<std::string> source_claim = {};
  std::optional<std::string> source_content = {};
  std::optional<std::string> class_name = {};

  struct Status {
    std::optional<std::string> bound_content = {};  // the name of its VolumeSnapshotContent
    std::optional<Time> creation_time = {};
    std::optional<bool> ready_to_use = {};
    std::optional<std::string> restore_size = {};  // a quantity: "10Gi"
    std::optional<std::string> error = {};
  };
  std::optional<Status> status = {};

  static absl::StatusOr<VolumeSnapshot> Decode(const Object& object);
  Object Encode() const;  // without status: it is written as a subresource
};

// A snapshot as the storage knows it.
struct VolumeSnapshotContent {
  static constexpr Resource kResource = kVolumeSnapshotContents;

  ObjectMeta meta = {};
  // The snapshot that it belongs to. The uid is empty until they are bound.
  std::string snapshot_namespace = {};
  std::string snapshot_name = {};
  std::string snapshot_uid = {};
  std::string driver = {};
  std::string deletion_policy = {};
  std::optional<std::string> class_name = {};
  // One of the two: the volume that it was taken from, or the snapshot that existed before.
  std::optional<std::string> source_volume_handle = {};
  std::optional<std::string> source_snapshot_handle = {};
  std::optional<std::string> source_volume_mode = {};  // "Block" or "Filesystem"

  struct Status {
    std::optional<std::string> snapshot_handle = {};
    std::optional<int64_t> creation_time = {};  // UNIX time in nanoseconds
    std::optional<int64_t> restore_size = {};   // bytes
    std::optional<bool> ready_to_use = {};
    std::optional<std::string> error = {};
  };
  std::optional<Status> status = {};

  static absl::StatusOr<VolumeSnapshotContent> Decode(const Object& object);
  Object Encode() const;  // without status
};

struct VolumeSnapshotClass {
  static constexpr Resource kResource = kVolumeSnapshotClasses;

  ObjectMeta meta = {};
  std::string driver = {};
  std::string deletion_policy = {};
  std::map<std::string, std::string> parameters = {};

  // Snapshots that name no class get this one, if it is the only one of the driver.
  bool IsDefault() const;

  static absl::StatusOr<VolumeSnapshotClass> Decode(const Object& object);
  Object Encode() const;
};

// Where the metadata service of a driver is. Its name is the driver's.
struct SnapshotMetadataService {
  static constexpr Resource kResource = kSnapshotMetadataServices;

  ObjectMeta meta = {};
  std::string audience = {};  // of the tokens that it accepts
  std::string address = {};   // "host:port"
  std::string ca = {};        // PEM
  // False: the driver gives deltas from snapshots that were deleted.
  bool requires_base = true;

  static absl::StatusOr<SnapshotMetadataService> Decode(const Object& object);
  Object Encode() const;
};

// What must be true of a snapshot and its content, beside that they belong to each other.
enum class BindingPolicy : unsigned char {
  kOwner,     // nothing: they are asked whose snapshot it is, for example of which driver
  kReadable,  // both are ready and there is a handle: the driver is asked for its data
};

// A snapshot and the content that belongs to it.
struct BoundSnapshot {
  std::string name_space = {};
  std::string name = {};
  std::string uid = {};
  std::string content = {};  // the name of the VolumeSnapshotContent
  std::string content_uid = {};
  std::string driver = {};
  std::optional<std::string> class_name = {};  // of the VolumeSnapshot
  std::string handle = {};                     // not empty with kReadable
  // Unknown of a snapshot that existed before its objects.
  std::optional<std::string> volume_handle = {};
  std::optional<int64_t> creation_time = {};  // UNIX time in nanoseconds
  std::optional<uint64_t> restore_size = {};  // of a volume made from it, in bytes; above 0
};

// The name of the content that the snapshot says it is bound to.
// Errors: UNAVAILABLE if it is not bound yet or, with kReadable, not ready.
absl::StatusOr<std::string> ContentNameOf(const VolumeSnapshot& snapshot, BindingPolicy policy);

// Whether a content belongs to a snapshot. Both must name each other, the content by namespace,
// name and uid. A content without a uid is not bound yet. One that belongs to another snapshot says
// nothing else about itself: that is checked first.
// Errors: UNAVAILABLE if they are not bound to each other yet or, with kReadable, not ready;
//         FAILED_PRECONDITION if the content belongs to another snapshot; INVALID_ARGUMENT for
//         another driver than `driver`, if that is set.
absl::StatusOr<BoundSnapshot> Bind(const VolumeSnapshot& snapshot,
                                   const VolumeSnapshotContent& content, BindingPolicy policy,
                                   const std::optional<std::string>& driver = {});

// Errors: INVALID_ARGUMENT if the two are known to be of different volumes, or if the base is known
//         to be the newer one.
absl::Status CheckPair(const BoundSnapshot& base, const BoundSnapshot& target);

// --- Questions that the API server answers about users and their rights.
//
// None of these is stored. Client::Create() sends one and returns it with its status. Without a
// status, nothing is granted.

struct UserInfo {
  std::string username = {};
  std::string uid = {};
  std::vector<std::string> groups = {};
  std::map<std::string, std::vector<std::string>> extra = {};
  friend bool operator==(const UserInfo&, const UserInfo&) = default;
};

// Asks whose token it is.
struct TokenReview {
  static constexpr Resource kResource = kTokenReviews;

  Secret token = {};
  // The token must be for one of these; empty: for the API server itself.
  std::vector<std::string> audiences = {};

  struct Status {
    bool authenticated = false;
    UserInfo user = {};
    std::vector<std::string> audiences = {};
    std::string error = {};
  };
  std::optional<Status> status = {};

  // The token is valid and meant for `audience`. The only question to ask of a status: a server
  // that knows nothing of audiences authenticates every token, and lists no audience.
  bool AuthenticatedFor(std::string_view audience) const;

  // Reads spec and status. The token, which the server returns, is dropped.
  static absl::StatusOr<TokenReview> Decode(const Object& object);
  Object Encode() const;
};

// Asks whether a user may do something.
struct SubjectAccessReview {
  static constexpr Resource kResource = kSubjectAccessReviews;

  struct ResourceAttributes {
    std::string name_space = {};  // empty: all namespaces
    std::string verb = {};
    std::string group = {};
    std::string version = {};
    std::string resource = {};
    std::string subresource = {};
    std::string name = {};  // empty: all names
  };
  struct NonResourceAttributes {
    std::string path = {};
    std::string verb = {};
  };
  // Exactly one of the two.
  std::optional<ResourceAttributes> resource = {};
  std::optional<NonResourceAttributes> non_resource = {};
  UserInfo user = {};

  struct Status {
    bool allowed = false;
    bool denied = false;
    std::string reason = {};
    std::string evaluation_error = {};
  };
  std::optional<Status> status = {};

  // There is a status, it allows, and it does not deny.
  bool Allowed() const noexcept { return status && status->allowed && !status->denied; }

  static absl::StatusOr<SubjectAccessReview> Decode(const Object& object);
  Object Encode() const;
};

// Asks who the client itself is.
struct SelfSubjectReview {
  static constexpr Resource kResource = kSelfSubjectReviews;

  std::optional<UserInfo> user = {};

  static absl::StatusOr<SelfSubjectReview> Decode(const Object& object);
  Object Encode() const;
};

// A token for a service account, as the server answers. Client::CreateToken() asks for one.
struct TokenRequest {
  std::vector<std::string> audiences = {};
  std::optional<int64_t> expiration_seconds = {};

  struct Status {
    Secret token = {};
    Time expiration = {};
  };
  std::optional<Status> status = {};

  static absl::StatusOr<TokenRequest> Decode(const Object& object);
  Object Encode() const;
};

// The namespace and name of a service account, from "system:serviceaccount:NAMESPACE:NAME".
struct ServiceAccountName {
  std::string name_space = {};
  std::string name = {};
};
// Empty if `username` is not a service account's.
std::optional<ServiceAccountName> ServiceAccountOf(std::string_view username);

// --- Secrets, config maps and leases.

struct SecretObject {
  static constexpr Resource kResource = kSecrets;

  ObjectMeta meta = {};
  std::string type = {};  // "Opaque", "kubernetes.io/tls"
  Secrets data = {};      // decoded

  static absl::StatusOr<SecretObject> Decode(const Object& object);
  Object Encode() const;
};

struct ConfigMap {
  static constexpr Resource kResource = kConfigMaps;

  ObjectMeta meta = {};
  std::map<std::string, std::string> data = {};

  static absl::StatusOr<ConfigMap> Decode(const Object& object);
  Object Encode() const;
};

// The leader, and how long it leads without a renewal.
struct Lease {
  static constexpr Resource kResource = kLeases;

  ObjectMeta meta = {};
  std::string holder = {};  // empty: none
  std::optional<int64_t> duration_seconds = {};
  std::optional<Time> acquire_time = {};
  std::optional<Time> renew_time = {};
  int64_t transitions = 0;

  static absl::StatusOr<Lease> Decode(const Object& object);
  Object Encode() const;
  // Writes these fields to an object that was read, and leaves all others as they are.
  void WriteTo(Object& object) const;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_TYPED_OBJECTS_H_
