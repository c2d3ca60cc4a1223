#include "programs/revisions/aggregated/api_server.h"

#include <chrono>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "programs/cluster/object_name.h"
#include "programs/revisions/aggregated/openapi_document.h"
#include "programs/revisions/http_server/error_response.h"

namespace cbt::kube::aggregated {
namespace {

using http_server::ErrorResponse;
using http_server::Response;

Response NotAllowed(const std::string& method, const char* allowed) {
  Response response = ErrorResponse(
      405, absl::StrCat(method,
                        " is not supported: a VolumeSnapshotDelta is a question, which is asked "
                        "by creating it and not stored"));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

Response OnlyRead(const http_server::Request& request, Response document) {
  if (request.method == "GET" || request.method == "HEAD") return document;
  Response response = ErrorResponse(405, "expected GET");
  response.headers.emplace_back("Allow", "GET, HEAD");
  return response;
}

bool IsJson(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(AbslView(type)), "application/json");
}

std::optional<std::string> HealthPath(std::string_view path) {
  for (const char* const one : {"healthz", "livez", "readyz"}) {
    if (path.starts_with('/') && path.substr(1) == one) return one;
  }
  return std::nullopt;
}

}  // namespace

ResourceTarget ParseResourcePath(std::string_view path) {
  if (!path.starts_with(kVersionPath)) return {};
  path.remove_prefix(kVersionPath.size());
  const std::vector<absl::string_view> parts = absl::StrSplit(AbslView(path), '/');
  const absl::string_view plural = AbslView(kVolumeSnapshotDeltas.plural);
  if (parts.size() < 2 || !parts[0].empty()) return {};
  if (parts[1] == plural) return {.kind = ResourceTarget::Kind::kOther};
  if (parts.size() < 4 || parts[1] != "namespaces" || parts[3] != plural) return {};
  const std::string name_space(parts[2]);
  if (!cluster::IsNamespaceName(name_space)) return {};
  return {
      .kind = parts.size() == 4 ? ResourceTarget::Kind::kCollection : ResourceTarget::Kind::kOther,
      .name_space = name_space};
}

void ApiServer::Handle(const RequestPtr& request, const http_server::Respond& respond) {
  if (const std::optional<std::string> health = HealthPath(request->path)) {
    return respond(
        HealthAnswer(*health, *health == "readyz" ? checks_() : HealthChecks(), request->query));
  }
  const absl::StatusOr<std::shared_ptr<const FrontProxy>> proxy = proxy_.Current();
  if (!proxy.ok()) return respond(Count(ErrorResponse(proxy.status())));
  absl::StatusOr<UserInfo> user = (*proxy)->UserOf(*request);
  if (!user.ok()) {
    log_.Failed("caller not recognised", user.status());
    return respond(Count(ErrorResponse(user.status())));
  }
  const auto wait = limit_.Take(user->username, FairLimit::Clock::now());
  if (wait.has_value()) {
    return respond(
        Count(ErrorResponse(429, "too many requests of this user, try again later", wait)));
  }
  Queue(request, *std::move(user), respond);
}

void ApiServer::Queue(const RequestPtr& request, UserInfo user,
                      const http_server::Respond& respond) {
  std::optional<FairPlaces::Place> place = places_.Take(user.username);
  if (!place.has_value()) {
    return respond(
        Count(ErrorResponse(absl::ResourceExhaustedError("too many requests, try again later"))));
  }
  // Tasks are copied.
  auto held = std::make_shared<FairPlaces::Place>(*std::move(place));
  threads_.Schedule([this, request, user = std::move(user), respond, held = std::move(held)] {
    Response response;
    try {
      response = Answer(*request, user);
    } catch (const std::exception& error) {
      log_.Failed("request failed", absl::InternalError(error.what()));
      response = {.code = 500};
    }
    respond(Count(std::move(response)));
    held->Release();
  });
}

Response ApiServer::Answer(const http_server::Request& request, const UserInfo& user) {
  const ResourceTarget target = ParseResourcePath(request.path);
  switch (target.kind) {
    case ResourceTarget::Kind::kNone:
      return Document(request, user);
    case ResourceTarget::Kind::kOther:
      return NotAllowed(request.method, "");
    case ResourceTarget::Kind::kCollection:
      if (request.method != "POST") return NotAllowed(request.method, "POST");
      return Create(request, user, target.name_space);
  }
  return ErrorResponse(absl::InternalError(""));
}

Response ApiServer::Create(const http_server::Request& request, const UserInfo& user,
                           const std::string& name_space) {
  SubjectAccessReview question;
  question.resource = SubjectAccessReview::ResourceAttributes{
      .name_space = name_space,
      .verb = "create",
      .group = std::string(kVolumeSnapshotDeltas.group),
      .version = std::string(kVolumeSnapshotDeltas.version),
      .resource = std::string(kVolumeSnapshotDeltas.plural)};
  question.user = user;
  if (const absl::Status may = reviewer_.Wait(question); !may.ok()) return ErrorResponse(may);
  if (!IsJson(request.Header("content-type"))) {
    return ErrorResponse(415, "expected Content-Type: application/json");
  }
  const absl::StatusOr<VolumeSnapshotDelta> delta =
      VolumeSnapshotDelta::Parse(request.body, name_space);
  if (!delta.ok()) {
    const std::string why(delta.status().message());
    return ErrorResponse(400, "VolumeSnapshotDelta: " + why);
  }
  absl::StatusOr<std::string> answer = service_.Answer(*delta, user);
  if (!answer.ok()) return ErrorResponse(answer.status());
  return {.code = 201, .body = *std::move(answer)};
}

Response ApiServer::Document(const http_server::Request& request, const UserInfo& user) {
  if (std::optional<Response> document = OpenApiDocument(request.path)) {
    return OnlyRead(request, *std::move(document));
  }
  SubjectAccessReview question;
  question.non_resource = SubjectAccessReview::NonResourceAttributes{
      .path = request.path, .verb = std::string(absl::AsciiStrToLower(request.method))};
  question.user = user;
  if (const absl::Status may = reviewer_.Wait(question); !may.ok()) return ErrorResponse(may);
  std::optional<Response> document = DiscoveryDocument(request);
  if (!document.has_value()) {
    return ErrorResponse(404, "there is nothing at this path");
  }
  return OnlyRead(request, *std::move(document));
}

Response ApiServer::Count(Response response) {
  if (response.code == 401) {
    ++counters_.unauthenticated;
  } else if (response.code == 429) {
    ++counters_.limited;
  } else if (response.code >= 500) {
    ++counters_.failed;
  } else if (response.code >= 400) {
    ++counters_.refused;
  } else {
    ++counters_.answered;
  }
  return response;
}

}  // namespace cbt::kube::aggregated
