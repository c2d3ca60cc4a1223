#include <algorithm>
#include <utility>

#include "cbt/kube/typed_objects.h"
#include "kube/object/field_reader.h"

namespace cbt::kube {
namespace {

absl::StatusOr<UserInfo> DecodeUser(const Object& object, std::string_view parent,
                                    std::string_view key) {
  UserInfo user;
  FieldReader reader(object);
  reader.Text({parent, key, "username"}, user.username);
  reader.Text({parent, key, "uid"}, user.uid);
  reader.Read(object.Strings({parent, key, "groups"}), user.groups);
  reader.Read(object.StringsMap({parent, key, "extra"}), user.extra);
  if (!reader.ok()) return reader.status();
  return user;
}

Object NewReview(const Resource& resource) { return Object(resource.ApiVersion(), resource.kind); }

void SetText(Object& object, const Path& path, const std::string& value) {
  if (!value.empty()) object.SetString(path, value);
}

}  // namespace

bool TokenReview::AuthenticatedFor(std::string_view audience) const {
  return status && status->authenticated && !audience.empty() &&
         std::find(status->audiences.begin(), status->audiences.end(), audience) !=
             status->audiences.end();
}

absl::StatusOr<TokenReview> TokenReview::Decode(const Object& object) {
  TokenReview review;
  FieldReader reader(object);
  reader.Read(object.Strings({"spec", "audiences"}), review.audiences);
  if (object.Has({"status"})) {
    Status status;
    reader.Read(object.Bool({"status", "authenticated"}), status.authenticated);
    reader.Read(DecodeUser(object, "status", "user"), status.user);
    reader.Read(object.Strings({"status", "audiences"}), status.audiences);
    reader.Text({"status", "error"}, status.error);
    review.status = std::move(status);
  }
  if (!reader.ok()) return reader.status();
  return review;
}

Object TokenReview::Encode() const {
  Object object = NewReview(kResource);
  object.SetString({"spec", "token"}, token.Reveal());
  if (!audiences.empty()) object.SetStrings({"spec", "audiences"}, audiences);
  return object;
}

absl::StatusOr<SubjectAccessReview> SubjectAccessReview::Decode(const Object& object) {
  SubjectAccessReview review;
  FieldReader reader(object);
  if (object.Has({"spec", "resourceAttributes"})) {
    ResourceAttributes attributes;
    const auto read = [&](std::string_view key, std::string& to) {
      reader.Text({"spec", "resourceAttributes", key}, to);
    };
    read("namespace", attributes.name_space);
    read("verb", attributes.verb);
    read("group", attributes.group);
    read("version", attributes.version);
    read("resource", attributes.resource);
    read("subresource", attributes.subresource);
    read("name", attributes.name);
    review.resource = std::move(attributes);
  }
  if (object.Has({"spec", "nonResourceAttributes"})) {
    NonResourceAttributes attributes;
    reader.Text({"spec", "nonResourceAttributes", "path"}, attributes.path);
    reader.Text({"spec", "nonResourceAttributes", "verb"}, attributes.verb);
    review.non_resource = std::move(attributes);
  }
  reader.Text({"spec", "user"}, review.user.username);
  reader.Text({"spec", "uid"}, review.user.uid);
  reader.Read(object.Strings({"spec", "groups"}), review.user.groups);
  reader.Read(object.StringsMap({"spec", "extra"}), review.user.extra);
  if (object.Has({"status"})) {
    Status status;
    reader.Read(object.Bool({"status", "allowed"}), status.allowed);
    reader.Read(object.Bool({"status", "denied"}), status.denied);
    reader.Text({"status", "reason"}, status.reason);
    reader.Text({"status", "evaluationError"}, status.evaluation_error);
    review.status = std::move(status);
  }
  if (!reader.ok()) return reader.status();
  return review;
}

Object SubjectAccessReview::Encode() const {
  Object object = NewReview(kResource);
  if (resource) {
    const auto write = [&](std::string_view key, const std::string& value) {
      SetText(object, {"spec", "resourceAttributes", key}, value);
    };
    write("namespace", resource->name_space);
    write("verb", resource->verb);
    write("group", resource->group);
    write("version", resource->version);
    write("resource", resource->resource);
    write("subresource", resource->subresource);
    write("name", resource->name);
  }
  if (non_resource) {
    SetText(object, {"spec", "nonResourceAttributes", "path"}, non_resource->path);
    SetText(object, {"spec", "nonResourceAttributes", "verb"}, non_resource->verb);
  }
  SetText(object, {"spec", "user"}, user.username);
  SetText(object, {"spec", "uid"}, user.uid);
  if (!user.groups.empty()) object.SetStrings({"spec", "groups"}, user.groups);
  if (!user.extra.empty()) object.SetStringsMap({"spec", "extra"}, user.extra);
  return object;
}

absl::StatusOr<SelfSubjectReview> SelfSubjectReview::Decode(const Object& object) {
  SelfSubjectReview review;
  if (object.Has({"status", "userInfo"})) {
    absl::StatusOr<UserInfo> user = DecodeUser(object, "status", "userInfo");
    if (!user.ok()) return user.status();
    review.user = *std::move(user);
  }
  return review;
}

Object SelfSubjectReview::Encode() const { return NewReview(kResource); }

absl::StatusOr<TokenRequest> TokenRequest::Decode(const Object& object) {
  TokenRequest request;
  FieldReader reader(object);
  reader.Read(object.Strings({"spec", "audiences"}), request.audiences);
  reader.Read(object.OptionalInt({"spec", "expirationSeconds"}), request.expiration_seconds);
  if (object.Has({"status"})) {
    Status status;
    reader.Read(object.SecretString({"status", "token"}), status.token);
    reader.Read(object.OptionalTime({"status", "expirationTimestamp"}), status.expiration);
    request.status = std::move(status);
  }
  if (!reader.ok()) return reader.status();
  return request;
}

Object TokenRequest::Encode() const {
  Object object("authentication.k8s.io/v1", "TokenRequest");
  if (!audiences.empty()) object.SetStrings({"spec", "audiences"}, audiences);
  if (expiration_seconds) object.SetInt({"spec", "expirationSeconds"}, *expiration_seconds);
  return object;
}

std::optional<ServiceAccountName> ServiceAccountOf(std::string_view username) {
  constexpr std::string_view kPrefix = "system:serviceaccount:";
  if (!username.starts_with(kPrefix)) return std::nullopt;
  username.remove_prefix(kPrefix.size());
  const size_t colon = username.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view name = username.substr(colon + 1);
  if (colon == 0 || name.empty() || name.find(':') != std::string_view::npos) return std::nullopt;
  return ServiceAccountName{.name_space = std::string(username.substr(0, colon)),
                            .name = std::string(name)};
}

}  // namespace cbt::kube
