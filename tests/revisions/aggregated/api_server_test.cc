#include "programs/revisions/aggregated/api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cbt/kube/object.h"
#include "programs/revisions/aggregated/discovery_documents.h"
#include "programs/revisions/aggregated/openapi_document.h"
#include "tests/support/status.h"

namespace cbt::test::api_server_test {

using kube::Object;
using kube::aggregated::DiscoveryDocument;
using kube::aggregated::HealthAnswer;
using kube::aggregated::OpenApiDocument;
using kube::aggregated::ParseResourcePath;
using kube::aggregated::ResourceTarget;
using kube::http_server::Request;
using kube::http_server::Response;

constexpr char kVersion[] = "/apis/cbt.storage.k8s.io/v1alpha1";

TEST(ApiServer, A1OneResourceOfNamespaces) {
  const auto kind = [](const std::string& rest) { return ParseResourcePath(kVersion + rest).kind; };
  const ResourceTarget target =
      ParseResourcePath(std::string(kVersion) + "/namespaces/prod/volumesnapshotdeltas");
  EXPECT_EQ(target.kind, ResourceTarget::Kind::kCollection);
  EXPECT_EQ(target.name_space, "prod");
  for (const char* const other :
       {"/volumesnapshotdeltas", "/volumesnapshotdeltas/x",
        "/namespaces/prod/volumesnapshotdeltas/x", "/namespaces/prod/volumesnapshotdeltas/x/status",
        "/namespaces/prod/volumesnapshotdeltas/"}) {
    EXPECT_EQ(kind(other), ResourceTarget::Kind::kOther) << other;
  }
  for (const char* const none :
       {"", "/", "x", "/namespaces", "/namespaces/prod", "/namespaces/prod/secrets",
        "/namespaces/../volumesnapshotdeltas", "/namespaces/%70rod/volumesnapshotdeltas",
        "/namespaces//volumesnapshotdeltas", "/watch/namespaces/prod/volumesnapshotdeltas"}) {
    EXPECT_EQ(kind(none), ResourceTarget::Kind::kNone) << none;
  }
}

Response Get(const std::string& path, const std::string& accept = "", const std::string& tag = "") {
  return DiscoveryDocument({.method = "GET",
                            .path = path,
                            .headers = {{"accept", accept}, {"if-none-match", tag}}})
      .value_or(Response{.code = 404});
}

TEST(ApiServer, A1DiscoveryNamesIt) {
  for (const char* const path : {"/apis", "/apis/cbt.storage.k8s.io", kVersion}) {
    const Response response = Get(path);
    EXPECT_EQ(response.code, 200);
    EXPECT_EQ(response.content_type, "application/json");
    EXPECT_TRUE(Object::Parse(response.body).ok()) << response.body;
  }
  const Object resource =
      ValueOf(Object::Parse(Get(kVersion).body)).Children({"resources"})->front();
  EXPECT_EQ(*resource.String({"name"}), "volumesnapshotdeltas");
  EXPECT_EQ(*resource.Strings({"verbs"}), std::vector<std::string>{"create"});
  EXPECT_TRUE(*resource.Bool({"namespaced"}));
  for (const char* const path : {"/", "/apis/", "/apis/other", "/openapi/v2", "/openapi/v3"}) {
    EXPECT_EQ(Get(path).code, 404) << path;
  }
}

TEST(ApiServer, OpenApiNamesTheVersionsDocument) {
  const Object list = ValueOf(Object::Parse(OpenApiDocument("/openapi/v3").value().body));
  const std::string url =
      *list.String({"paths", "apis/cbt.storage.k8s.io/v1alpha1", "serverRelativeURL"});
  const Object document =
      ValueOf(Object::Parse(OpenApiDocument(url.substr(0, url.find('?'))).value().body));
  EXPECT_TRUE(
      document.Has({"paths", std::string(kVersion) + "/namespaces/{namespace}/volumesnapshotdeltas",
                    "post", "requestBody"}));
  // Without it, kubectl lists CustomResourceDefinitions before it creates one.
  EXPECT_TRUE(document.Has(
      {"paths", std::string(kVersion) + "/namespaces/{namespace}/volumesnapshotdeltas/{name}",
       "patch", "parameters"}));
  for (const char* const kind : {"", "Spec", "Status"}) {
    EXPECT_TRUE(document.Has({"components", "schemas",
                              std::string("io.k8s.storage.cbt.v1alpha1.VolumeSnapshotDelta") + kind,
                              "description"}))
        << kind;
  }
  for (const char* const none : {"/openapi", "/openapi/v2", "/openapi/v3/", "/openapi/v3/apis"}) {
    EXPECT_FALSE(OpenApiDocument(none).has_value()) << none;
  }
}

TEST(ApiServer, A1AggregatedDiscoveryHasATag) {
  const std::string v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
  const Response response = Get("/apis", v2 + ",application/json");
  EXPECT_EQ(response.content_type, v2);
  const Object list = ValueOf(Object::Parse(response.body));
  EXPECT_EQ(list.kind(), "APIGroupDiscoveryList");
  EXPECT_EQ(list.api_version(), "apidiscovery.k8s.io/v2");
  std::string tag;
  for (const auto& [name, value] : response.headers) {
    if (name == "ETag") tag = value;
  }
  EXPECT_EQ(Get("/apis", v2, tag).code, 304);
  EXPECT_EQ(Get("/apis", v2, "\"x\"").code, 200);
  const std::string beta =
      "application/json;g=apidiscovery.k8s.io; v=v2beta1;as=APIGroupDiscoveryList";
  EXPECT_EQ(Object::Parse(Get("/apis", beta).body)->api_version(), "apidiscovery.k8s.io/v2beta1");
  // What it does not know, and what the client likes less, get the plain form.
  for (const std::string& accept :
       {std::string("application/json"), std::string("*/*"), std::string(";;=,,"),
        std::string("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList"),
        "application/json," + v2}) {
    EXPECT_EQ(Object::Parse(Get("/apis", accept).body)->kind(), "APIGroupList") << accept;
  }
}

TEST(ApiServer, HealthSaysWhatIsWrong) {
  EXPECT_EQ(HealthAnswer("readyz", {{"a", ""}}, "").body, "ok");
  EXPECT_EQ(HealthAnswer("readyz", {{"a", ""}}, "verbose").body, "[+]a ok\nreadyz check passed\n");
  const Response bad = HealthAnswer("readyz", {{"a", ""}, {"b", "why"}}, "");
  EXPECT_EQ(bad.code, 500);
  EXPECT_EQ(bad.body, "[+]a ok\n[-]b failed: why\nreadyz check failed\n");
  EXPECT_EQ(HealthAnswer("readyz", {{"b", "why"}}, "exclude=b").body, "ok");
}

}  // namespace cbt::test::api_server_test
