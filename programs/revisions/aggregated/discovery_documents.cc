#include "programs/revisions/aggregated/discovery_documents.h"

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "programs/cluster/answer_cache.h"

namespace cbt::kube::aggregated {
namespace {

constexpr char kGroupDocument[] =
    R"("name":"cbt.storage.k8s.io",)"
    R"("versions":[{"groupVersion":"cbt.storage.k8s.io/v1alpha1","version":"v1alpha1"}],)"
    R"("preferredVersion":{"groupVersion":"cbt.storage.k8s.io/v1alpha1","version":"v1alpha1"})";

constexpr char kResources[] =
    R"({"kind":"APIResourceList","apiVersion":"v1","groupVersion":"cbt.storage.k8s.io/v1alpha1",)"
    R"("resources":[{"name":"volumesnapshotdeltas","singularName":"volumesnapshotdelta",)"
    R"("namespaced":true,"kind":"VolumeSnapshotDelta","verbs":["create"]}]})";

constexpr char kAggregated[] =
    R"(,"metadata":{},"items":[{"metadata":{"name":"cbt.storage.k8s.io",)"
    R"("creationTimestamp":null},"versions":[{"version":"v1alpha1","resources":[)"
    R"({"resource":"volumesnapshotdeltas","responseKind":{"group":"cbt.storage.k8s.io",)"
    R"("version":"v1alpha1","kind":"VolumeSnapshotDelta"},"scope":"Namespaced",)"
    R"("singularResource":"volumesnapshotdelta","verbs":["create"]}],"freshness":"Current"}]}]})";

// The version of apidiscovery.k8s.io that the client wants for /apis; empty: the plain form.
std::string AggregatedVersion(std::string_view accept) {
  for (const absl::string_view type : absl::StrSplit(AbslView(accept), ',')) {
    std::string group;
    std::string version;
    std::string as;
    for (const absl::string_view part : absl::StrSplit(type, ';')) {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(absl::StripAsciiWhitespace(part), absl::MaxSplits('=', 1));
      if (pair.first == "g") group = std::string(pair.second);
      if (pair.first == "v") version = std::string(pair.second);
      if (pair.first == "as") as = std::string(pair.second);
    }
    if (group == "apidiscovery.k8s.io" && as == "APIGroupDiscoveryList" &&
        (version == "v2" || version == "v2beta1")) {
      return version;
    }
    // Types come in the order of preference.
    if (group.empty()) return "";
  }
  return "";
}

std::string TagOf(std::string_view text) {
  const std::array<std::string_view, 1> parts = {text};
  const cluster::QuestionKey key = cluster::KeyOf(parts);
  return absl::StrCat(
      "\"", absl::BytesToHexString({reinterpret_cast<const char*>(key.data()), key.size()}), "\"");
}

http_server::Response Apis(const http_server::Request& request) {
  const std::string version = AggregatedVersion(request.Header("accept"));
  if (version.empty()) {
    return {.body = absl::StrCat(R"({"kind":"APIGroupList","apiVersion":"v1","groups":[{)",
                                 kGroupDocument, "}]}\n")};
  }
  http_server::Response response = {
      .content_type = absl::StrCat("application/json;g=apidiscovery.k8s.io;v=", version,
                                   ";as=APIGroupDiscoveryList"),
      .body = absl::StrCat(R"({"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/)",
                           version, "\"", kAggregated, "\n")};
  const std::string tag = TagOf(response.body);
  response.headers.emplace_back("ETag", tag);
  response.headers.emplace_back("Vary", "Accept");
  if (request.Header("if-none-match") == tag) {
    response.code = 304;
    response.body.clear();
  }
  return response;
}

}  // namespace

std::optional<http_server::Response> DiscoveryDocument(const http_server::Request& request) {
  if (request.path == kApisPath) return Apis(request);
  if (request.path == kGroupPath) {
    return http_server::Response{
        .body = absl::StrCat(R"({"kind":"APIGroup","apiVersion":"v1",)", kGroupDocument, "}\n")};
  }
  if (request.path == kVersionPath) return http_server::Response{.body = std::string(kResources)};
  return std::nullopt;
}

http_server::Response HealthAnswer(std::string_view what, const HealthChecks& checks,
                                   std::string_view query) {
  const std::vector<absl::string_view> asked = absl::StrSplit(AbslView(query), '&');
  const auto has = [&](const std::string& one) {
    return std::find(asked.begin(), asked.end(), one) != asked.end();
  };
  const bool verbose = has("verbose") || has("verbose=") || has("verbose=true");
  std::string lines;
  bool good = true;
  for (const auto& [name, wrong] : checks) {
    if (has("exclude=" + name)) {
      absl::StrAppend(&lines, "[+]", name, " excluded: ok\n");
    } else if (wrong.empty()) {
      absl::StrAppend(&lines, "[+]", name, " ok\n");
    } else {
      absl::StrAppend(&lines, "[-]", name, " failed: ", wrong, "\n");
      good = false;
    }
  }
  http_server::Response response = {.code = good ? 200 : 500,
                                    .content_type = "text/plain; charset=utf-8"};
  response.body = good ? "ok" : "";
  if (verbose || !good) {
    response.body =
        absl::StrCat(lines, AbslView(what), " check ", good ? "passed" : "failed", "\n");
  }
  return response;
}

}  // namespace cbt::kube::aggregated
