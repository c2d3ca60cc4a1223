#include "kube/client/requests.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/percent.h"
#include "base/text.h"
#include "base/wipe.h"
#include "kube/object/json.h"
#include "kube/object/object_access.h"

namespace cbt::kube {
namespace {

constexpr char kJson[] = "application/json";

absl::Status NeedsName(const Resource& resource) {
  return absl::InvalidArgumentError(
      absl::StrCat("the name of one of ", AbslView(resource.plural), " is empty"));
}

void SetBody(std::string_view body, std::string_view content_type, WireRequest& wire) {
  wire.body = Secret(body);
  wire.has_body = true;
  wire.content_type = content_type;
}

void SetBody(const Object& object, std::string_view content_type, WireRequest& wire) {
  std::string text = object.ToJson();
  const Wiper wiper(text);
  SetBody(text, content_type, wire);
}

// The request for an object; `name` may be empty for all of a type.
absl::StatusOr<ApiRequest> Make(std::string_view method, const Resource& resource,
                                std::string_view name_space, std::string_view name,
                                std::string_view subresource, const Query& query) {
  const absl::StatusOr<std::string> path = ResourcePath(resource, name_space, name, subresource);
  if (!path.ok()) return path.status();
  ApiRequest request;
  request.wire.method = method;
  request.wire.target = *path + query.text();
  request.wire.what = absl::StrCat(AbslView(method), " ", *path);
  request.wire.accept = kJson;
  request.expected.what = request.wire.what;
  // Other subresources may be objects of another type.
  if (subresource.empty() || subresource == "status") {
    request.expected.api_version = resource.ApiVersion();
    request.expected.kind = resource.kind;
    request.expected.name = name;
    if (resource.namespaced) request.expected.name_space = name_space;
  }
  return request;
}

void AddWriteOptions(const WriteOptions& options, Query& query) {
  query.Add("fieldManager", options.field_manager);
  if (options.dry_run) query.Add("dryRun", "All");
  if (options.strict_fields) query.Add("fieldValidation", "Strict");
}

// The object, with apiVersion and kind of the type where they are absent. `applied`: without
// managedFields, which a server refuses in what is applied.
void SetTypedBody(const Resource& resource, const Object& object, bool applied,
                  std::string_view content_type, WireRequest& wire) {
  const std::string api_version = resource.ApiVersion();
  json::Edits edits;
  if (object.api_version().empty()) edits.set.push_back({"apiVersion", api_version});
  if (object.kind().empty() && !resource.kind.empty()) {
    edits.set.push_back({"kind", resource.kind});
  }
  if (applied) {
    edits.parent = "metadata";
    edits.child = "managedFields";
  }
  std::string text = json::ToText(ObjectAccess::Root(object), edits);
  const Wiper wiper(text);
  SetBody(text, content_type, wire);
}

// Asking twice is asking once.
bool IsReview(const Resource& resource) {
  return resource == kTokenReviews || resource == kSubjectAccessReviews ||
         resource == kSelfSubjectReviews;
}

// For headers: no line breaks.
bool IsClean(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f;
  });
}

}  // namespace

void Query::Add(std::string_view key, std::string_view value) {
  if (value.empty()) return;
  absl::StrAppend(&text_, text_.empty() ? "?" : "&", PercentEncode(key, PercentPlain::kUnreserved),
                  "=", PercentEncode(value, PercentPlain::kUnreserved));
}

absl::StatusOr<ApiRequest> GetRequest(const Resource& resource, std::string_view name_space,
                                      std::string_view name, const GetOptions& options) {
  if (name.empty()) return NeedsName(resource);
  Query query;
  query.Add("resourceVersion", options.resource_version);
  absl::StatusOr<ApiRequest> request =
      Make("GET", resource, name_space, name, options.subresource, query);
  if (request.ok()) request->wire.repeatable = true;
  return request;
}

absl::StatusOr<ApiRequest> ListRequest(const Resource& resource, std::string_view name_space,
                                       const ListOptions& options) {
  Query query;
  query.Add("labelSelector", options.label_selector);
  query.Add("fieldSelector", options.field_selector);
  query.Add("resourceVersion", options.resource_version);
  query.Add("resourceVersionMatch", options.resource_version_match);
  if (options.limit > 0) query.Add("limit", absl::StrCat(options.limit));
  query.Add("continue", options.continue_token);
  absl::StatusOr<ApiRequest> request = Make("GET", resource, name_space, {}, {}, query);
  if (request.ok()) request->wire.repeatable = true;
  return request;
}

absl::StatusOr<ApiRequest> CreateRequest(const Resource& resource, const Object& object,
                                         const WriteOptions& options) {
  if (resource.namespaced && object.name_space().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("one of ", AbslView(resource.plural), " is created in a namespace"));
  }
  if (options.subresource.empty() != options.name.empty()) {
    return absl::InvalidArgumentError("a subresource is created for an object: both or neither");
  }
  Query query;
  AddWriteOptions(options, query);
  absl::StatusOr<ApiRequest> request =
      Make("POST", resource, object.name_space(), options.name, options.subresource, query);
  if (!request.ok()) return request;
  request->wire.repeatable = IsReview(resource) && options.subresource.empty();
  if (options.subresource.empty()) {
    SetTypedBody(resource, object, false, kJson, request->wire);
    request->expected.name = object.name();
  } else {
    SetBody(object, kJson, request->wire);
  }
  return request;
}

absl::StatusOr<ApiRequest> UpdateRequest(const Resource& resource, const Object& object,
                                         const WriteOptions& options) {
  if (object.name().empty()) return NeedsName(resource);
  if (object.resource_version().empty()) {
    return absl::InvalidArgumentError(
        "metadata.resourceVersion is empty: an update says what it replaces");
  }
  Query query;
  AddWriteOptions(options, query);
  absl::StatusOr<ApiRequest> request =
      Make("PUT", resource, object.name_space(), object.name(), options.subresource, query);
  if (!request.ok()) return request;
  SetTypedBody(resource, object, false, kJson, request->wire);
  return request;
}

absl::StatusOr<ApiRequest> PatchRequest(const Resource& resource, std::string_view name_space,
                                        std::string_view name, PatchType type,
                                        std::string_view patch, const WriteOptions& options) {
  if (name.empty()) return NeedsName(resource);
  Query query;
  AddWriteOptions(options, query);
  absl::StatusOr<ApiRequest> request =
      Make("PATCH", resource, name_space, name, options.subresource, query);
  if (!request.ok()) return request;
  switch (type) {
    case PatchType::kMerge:
      SetBody(patch, "application/merge-patch+json", request->wire);
      break;
    case PatchType::kJson:
      SetBody(patch, "application/json-patch+json", request->wire);
      break;
    case PatchType::kStrategic:
      SetBody(patch, "application/strategic-merge-patch+json", request->wire);
      break;
  }
  return request;
}

absl::StatusOr<ApiRequest> ApplyRequest(const Resource& resource, const Object& object,
                                        const ApplyOptions& options) {
  if (object.name().empty()) return NeedsName(resource);
  if (options.field_manager.empty()) {
    return absl::InvalidArgumentError("server-side apply needs a field manager");
  }
  Query query;
  query.Add("fieldManager", options.field_manager);
  if (options.force) query.Add("force", "true");
  if (options.dry_run) query.Add("dryRun", "All");
  absl::StatusOr<ApiRequest> request =
      Make("PATCH", resource, object.name_space(), object.name(), options.subresource, query);
  if (!request.ok()) return request;
  request->wire.repeatable = true;
  // JSON is YAML.
  SetTypedBody(resource, object, true, "application/apply-patch+yaml", request->wire);
  return request;
}

absl::StatusOr<ApiRequest> DeleteRequest(const Resource& resource, std::string_view name_space,
                                         std::string_view name, const DeleteOptions& options) {
  // Without a name it would delete all of them.
  if (name.empty()) return NeedsName(resource);
  absl::StatusOr<ApiRequest> request = Make("DELETE", resource, name_space, name, {}, {});
  if (!request.ok()) return request;
  Object body("v1", "DeleteOptions");
  if (!options.uid.empty()) body.SetString({"preconditions", "uid"}, options.uid);
  if (!options.resource_version.empty()) {
    body.SetString({"preconditions", "resourceVersion"}, options.resource_version);
  }
  if (!options.propagation.empty()) body.SetString({"propagationPolicy"}, options.propagation);
  if (options.grace_period_seconds) {
    body.SetInt({"gracePeriodSeconds"}, *options.grace_period_seconds);
  }
  if (options.dry_run) body.SetStrings({"dryRun"}, {"All"});
  SetBody(body, kJson, request->wire);
  // A Status, or the object as it is going.
  request->expected = {.what = request->wire.what};
  return request;
}

absl::StatusOr<WireRequest> RawRequest(Request request) {
  const Wiper wiper(request.body);
  constexpr std::string_view kMethods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};
  if (std::find(std::begin(kMethods), std::end(kMethods), request.method) == std::end(kMethods)) {
    return absl::InvalidArgumentError(
        "method of a request: expected GET, HEAD, POST, PUT, PATCH or DELETE");
  }
  if (!request.path.starts_with('/') || !IsClean(request.path) ||
      request.path.find_first_of("?# ") != std::string::npos) {
    return absl::InvalidArgumentError(
        "path of a request: expected a path that begins with a slash, without a query");
  }
  if (!IsClean(request.content_type) || !IsClean(request.accept)) {
    return absl::InvalidArgumentError("content type of a request: has control characters");
  }
  Query query;
  for (const auto& [key, value] : request.query) query.Add(key, value);
  WireRequest wire;
  wire.method = request.method;
  wire.target = request.path + query.text();
  wire.what = request.method + " " + request.path;
  wire.accept = request.accept.empty() ? "*/*" : request.accept;
  wire.repeatable = request.repeatable || request.method == "GET" || request.method == "HEAD";
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" ||
      request.method == "PATCH") {
    SetBody(request.body, request.content_type.empty() ? kJson : request.content_type, wire);
  }
  return wire;
}

}  // namespace cbt::kube
