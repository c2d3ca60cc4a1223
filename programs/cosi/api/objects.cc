#include "programs/cosi/api/objects.h"

#include <algorithm>

#include "kube/object/field_reader.h"
#include "programs/cosi/api/names.h"

namespace cbt::kube::cosi {
namespace {

void ReadReference(FieldReader& reader, const Object& object, std::string_view field,
                   Reference& to) {
  reader.Text({"spec", field, "name"}, to.name);
  reader.Text({"spec", field, "namespace"}, to.name_space);
  reader.Text({"spec", field, "uid"}, to.uid);
  if (!object.Has({"spec", field})) to = {};
}

// [{"name": N}, ...] at `path`.
void ReadNamespaces(FieldReader& reader, const Object& object, const Path& path, bool& given,
                    std::vector<std::string>& to) {
  given = object.Has(path);
  std::vector<Object> elements;
  reader.Read(object.Children(path), elements);
  for (const Object& element : elements) {
    std::string name;
    reader.Read(element.String({"name"}), name);
    to.push_back(std::move(name));
  }
}

void WriteText(Object& object, const Path& path, const std::string& value) {
  if (!value.empty()) object.SetString(path, value);
}

void WriteReference(Object& object, std::string_view field, const Reference& reference) {
  WriteText(object, {"spec", field, "name"}, reference.name);
  WriteText(object, {"spec", field, "namespace"}, reference.name_space);
  WriteText(object, {"spec", field, "uid"}, reference.uid);
}

void WriteMap(Object& object, const Path& path, const std::map<std::string, std::string>& values) {
  if (!values.empty()) object.SetStringMap(path, values);
}

template <typename T>
absl::StatusOr<T> Result(const FieldReader& reader, T value) {
  if (!reader.ok()) return reader.status();
  return value;
}

}  // namespace

absl::StatusOr<BucketRequest> BucketRequest::Decode(const Object& object) {
  BucketRequest request;
  FieldReader reader(object);
  reader.Read(object.Meta(), request.meta);
  reader.Text({"spec", "bucketPrefix"}, request.prefix);
  reader.Text({"spec", "bucketClassName"}, request.class_name);
  reader.Text({"status", "bucketName"}, request.bucket_name);
  reader.Read(object.Bool({"status", "bucketAvailable"}), request.available);
  return Result(reader, std::move(request));
}

absl::StatusOr<Bucket> Bucket::Decode(const Object& object) {
  Bucket bucket;
  FieldReader reader(object);
  reader.Read(object.Meta(), bucket.meta);
  reader.Text({"spec", "provisioner"}, bucket.provisioner);
  reader.Text({"spec", "deletionPolicy"}, bucket.deletion_policy);
  reader.Text({"spec", "bucketClassName"}, bucket.class_name);
  ReadReference(reader, object, "bucketRequest", bucket.request);
  ReadNamespaces(reader, object, {"spec", "allowedNamespaces"}, bucket.has_allowed_namespaces,
                 bucket.allowed_namespaces);
  reader.Text({"spec", "bucketID"}, bucket.given_id);
  reader.Read(object.Child({"spec", "protocol"}), bucket.protocol);
  reader.Read(object.StringMap({"spec", "parameters"}), bucket.parameters);
  reader.Read(object.Bool({"status", "bucketAvailable"}), bucket.available);
  reader.Text({"status", "bucketID"}, bucket.bucket_id);
  return Result(reader, std::move(bucket));
}

Object Bucket::Encode() const {
  Object object(kResource.ApiVersion(), kResource.kind);
  object.SetMeta(meta);
  WriteText(object, {"spec", "provisioner"}, provisioner);
  WriteText(object, {"spec", "deletionPolicy"}, deletion_policy);
  WriteText(object, {"spec", "bucketClassName"}, class_name);
  WriteReference(object, "bucketRequest", request);
  if (has_allowed_namespaces) {
    std::vector<Object> elements;
    for (const std::string& name : allowed_namespaces) {
      Object element;
      element.SetString({"name"}, name);
      elements.push_back(std::move(element));
    }
    object.SetChildren({"spec", "allowedNamespaces"}, elements);
  }
  WriteText(object, {"spec", "bucketID"}, given_id);
  object.SetChild({"spec", "protocol"}, protocol);
  WriteMap(object, {"spec", "parameters"}, parameters);
  return object;
}

absl::StatusOr<BucketClass> BucketClass::Decode(const Object& object) {
  BucketClass one;
  FieldReader reader(object);
  reader.Read(object.Meta(), one.meta);
  reader.Text({"provisioner"}, one.provisioner);
  reader.Text({"deletionPolicy"}, one.deletion_policy);
  ReadNamespaces(reader, object, {"allowedNamespaces"}, one.has_allowed_namespaces,
                 one.allowed_namespaces);
  reader.Read(object.Child({"protocol"}), one.protocol);
  reader.Read(object.StringMap({"parameters"}), one.parameters);
  return Result(reader, std::move(one));
}

bool BucketClass::is_default() const {
  const auto found = meta.annotations.find(std::string(kDefaultClassAnnotation));
  return found != meta.annotations.end() && found->second != "false";
}

bool BucketClass::Allows(std::string_view name_space) const {
  return !has_allowed_namespaces || std::find(allowed_namespaces.begin(), allowed_namespaces.end(),
                                              name_space) != allowed_namespaces.end();
}

absl::StatusOr<BucketAccessRequest> BucketAccessRequest::Decode(const Object& object) {
  BucketAccessRequest request;
  FieldReader reader(object);
  reader.Read(object.Meta(), request.meta);
  reader.Text({"spec", "bucketAccessClassName"}, request.class_name);
  reader.Text({"spec", "serviceAccountName"}, request.service_account);
  reader.Text({"spec", "bucketRequestName"}, request.request_name);
  reader.Text({"spec", "bucketName"}, request.bucket_name);
  reader.Text({"status", "bucketAccessName"}, request.access_name);
  reader.Read(object.Bool({"status", "accessGranted"}), request.granted);
  return Result(reader, std::move(request));
}

absl::StatusOr<BucketAccess> BucketAccess::Decode(const Object& object) {
  BucketAccess access;
  FieldReader reader(object);
  reader.Read(object.Meta(), access.meta);
  reader.Text({"spec", "bucketName"}, access.bucket_name);
  ReadReference(reader, object, "bucketAccessRequest", access.request);
  ReadReference(reader, object, "serviceAccount", access.service_account);
  reader.Text({"spec", "accountID"}, access.wanted_account);
  ReadReference(reader, object, "credentials", access.given_credentials);
  reader.Text({"spec", "policyActionsConfigMapData"}, access.policy);
  reader.Read(object.StringMap({"spec", "parameters"}), access.parameters);
  reader.Read(object.Bool({"status", "accessGranted"}), access.granted);
  reader.Text({"status", "accountID"}, access.account_id);
  reader.Text({"status", "credentials", "name"}, access.credentials.name);
  reader.Text({"status", "credentials", "namespace"}, access.credentials.name_space);
  return Result(reader, std::move(access));
}

Object BucketAccess::Encode() const {
  Object object(kResource.ApiVersion(), kResource.kind);
  object.SetMeta(meta);
  WriteText(object, {"spec", "bucketName"}, bucket_name);
  WriteReference(object, "bucketAccessRequest", request);
  WriteReference(object, "serviceAccount", service_account);
  WriteText(object, {"spec", "accountID"}, wanted_account);
  WriteReference(object, "credentials", given_credentials);
  WriteText(object, {"spec", "policyActionsConfigMapData"}, policy);
  WriteMap(object, {"spec", "parameters"}, parameters);
  return object;
}

absl::StatusOr<BucketAccessClass> BucketAccessClass::Decode(const Object& object) {
  BucketAccessClass one;
  FieldReader reader(object);
  reader.Read(object.Meta(), one.meta);
  reader.Text({"policyActionsConfigMap", "name"}, one.policy.name);
  reader.Text({"policyActionsConfigMap", "namespace"}, one.policy.name_space);
  reader.Read(object.StringMap({"parameters"}), one.parameters);
  return Result(reader, std::move(one));
}

}  // namespace cbt::kube::cosi
