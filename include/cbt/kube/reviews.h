// Questions that the API server answers about users and their rights. Part of cbt::kube.
//
// None of these is stored. Client::Create() sends one and returns it with its status. A status may
// be absent: then nothing is granted.
#ifndef CBT_KUBE_REVIEWS_H_
#define CBT_KUBE_REVIEWS_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "cbt/kube/resource.h"
#include "cbt/secrets.h"
#include "cbt/version.h"

namespace cbt::kube {

struct UserInfo {
  std::string username = {};
  std::string uid = {};
  std::vector<std::string> groups = {};
  std::map<std::string, std::vector<std::string>> extra = {};
  friend bool operator==(const UserInfo&, const UserInfo&) = default;
};

// Whose token is it?
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

// May this user do that?
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

// Who am I?
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

}  // namespace cbt::kube

#endif  // CBT_KUBE_REVIEWS_H_
