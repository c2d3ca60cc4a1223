// The client against a server whose answers are scripted.
#include "cbt/kube/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/status.h"
#include "cbt/kube/typed_objects.h"
#include "tests/kube/support/scripted_server.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::kube {
namespace client_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::ConfigMapJson;
using test::ScriptedAnswer;
using test::ScriptedRequest;
using test::ScriptedServer;
using test::StatusJson;
using test::TempDir;
using test::ValueOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::unique_ptr<Client> MakeClient(const ScriptedServer& server, ClientOptions options = {}) {
  return ValueOf(Client::Create(server.config(), std::move(options)));
}

ScriptedAnswer Ok(std::string body) { return {.body = std::move(body)}; }

TEST(ClientTest, Requests) {
  const ScriptedServer server([](const ScriptedRequest& request) {
    if (request.method == "GET" && request.target.find("/configmaps/a") == std::string::npos) {
      return Ok(R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},)"
                R"("items":[{"metadata":{"name":"a","namespace":"ns"}}]})");
    }
    return Ok(ConfigMapJson("ns", "a", "v"));
  });
  const auto client = MakeClient(server, {.user_agent = "tester/1"});
  ConfigMap map;
  map.meta.name = "a";
  map.meta.name_space = "ns";
  map.data = {{"key", "v"}};
  EXPECT_EQ(ValueOf(client->Get<ConfigMap>("ns", "a")).data, map.data);
  EXPECT_EQ(ValueOf(client->Create(map)).meta.uid, "u-1");
  Object object = ValueOf(client->Get(kConfigMaps, "ns", "a", {.resource_version = "0"}));
  WriteOptions write;
  write.field_manager = "m";
  write.dry_run = true;
  write.strict_fields = true;
  EXPECT_OK(client->Update(kConfigMaps, object, write));
  write = {};
  write.subresource = "status";
  EXPECT_OK(client->Patch(kConfigMaps, "ns", "a", PatchType::kMerge, R"({"x":1})", write));
  EXPECT_OK(client->Patch(kConfigMaps, "ns", "a", PatchType::kJson, "[]"));
  ApplyOptions apply;
  apply.field_manager = "m";
  apply.force = true;
  object.SetString({"metadata", "managedFields", "x"}, "y");
  EXPECT_OK(client->Apply(kConfigMaps, object, apply));
  DeleteOptions remove;
  remove.uid = "u-1";
  remove.resource_version = "7";
  remove.propagation = "Orphan";
  remove.grace_period_seconds = 0;
  EXPECT_OK(client->Delete(kConfigMaps, "ns", "a", remove));
  ListOptions list;
  list.label_selector = "a=b,c";
  list.limit = 5;
  const ObjectList objects = ValueOf(client->List(kConfigMaps, "ns", list));
  ASSERT_EQ(objects.items.size(), 1U);
  EXPECT_EQ(objects.items[0].kind(), "ConfigMap") << "as lists of real servers leave it out";
  EXPECT_EQ(objects.items[0].api_version(), "v1");
  EXPECT_EQ(objects.resource_version, "9");

  const std::vector<ScriptedRequest> requests = server.requests();
  ASSERT_EQ(requests.size(), 9U);
  const std::string path = "/api/v1/namespaces/ns/configmaps";
  std::vector<std::string> lines;
  for (const ScriptedRequest& request : requests) {
    lines.push_back(request.method + " " + request.target);
  }
  EXPECT_THAT(
      lines,
      ElementsAre("GET " + path + "/a", "POST " + path, "GET " + path + "/a?resourceVersion=0",
                  "PUT " + path + "/a?fieldManager=m&dryRun=All&fieldValidation=Strict",
                  "PATCH " + path + "/a/status", "PATCH " + path + "/a",
                  "PATCH " + path + "/a?fieldManager=m&force=true", "DELETE " + path + "/a",
                  "GET " + path + "?labelSelector=a%3Db%2Cc&limit=5"));
  EXPECT_EQ(requests[0].header("accept"), "application/json");
  EXPECT_EQ(requests[0].header("user-agent"), absl::StrCat("tester/1 libcbt/", kVersion));
  EXPECT_EQ(requests[0].header("host"), absl::StrCat("127.0.0.1:", server.port()));
  EXPECT_EQ(requests[0].header("authorization"), "");
  EXPECT_EQ(requests[1].body,
            R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"},)"
            R"("data":{"key":"v"}})");
  EXPECT_EQ(requests[1].header("content-type"), "application/json");
  EXPECT_EQ(requests[4].header("content-type"), "application/merge-patch+json");
  EXPECT_EQ(requests[4].body, R"({"x":1})");
  EXPECT_EQ(requests[5].header("content-type"), "application/json-patch+json");
  EXPECT_EQ(requests[6].header("content-type"), "application/apply-patch+yaml");
  EXPECT_THAT(requests[6].body, Not(HasSubstr("managedFields")));
  EXPECT_EQ(requests[7].body,
            R"({"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u-1",)"
            R"("resourceVersion":"7"},"propagationPolicy":"Orphan","gracePeriodSeconds":0})");
  EXPECT_EQ(server.connections(), 1) << "one connection serves them all";
  EXPECT_THAT(server.complaints(), IsEmpty());
  EXPECT_EQ(client->counters().requests, 9U);
  EXPECT_EQ(client->counters().connections, 1U);
}

TEST(ClientTest, WhatIsNoRequestIsNotSent) {
  const ScriptedServer server([](const ScriptedRequest&) { return Ok("{}"); });
  const auto client = MakeClient(server);
  const Object bare("v1", "ConfigMap", "ns", "a");
  const std::vector<absl::Status> results = {
      client->Get(kConfigMaps, "ns", "").status(),
      client->Get(kConfigMaps, "ns", "../secrets").status(),
      client->Create(kConfigMaps, Object("v1", "ConfigMap", "", "a")).status(),
      client->Update(kConfigMaps, bare).status(),
      client->Apply(kConfigMaps, bare, {}).status(),
      client->Delete(kConfigMaps, "ns", ""),
      client->Send({.method = "BREW", .path = "/"}).status(),
      client->Send({.path = "no-slash"}).status(),
      client->Send({.path = "/a?b"}).status(),
      client->Send({.path = "/", .accept = "a\r\nX: y"}).status(),
  };
  for (const absl::Status& result : results) {
    EXPECT_EQ(result.code(), absl::StatusCode::kInvalidArgument) << result;
  }
  EXPECT_THAT(server.requests(), IsEmpty());
}

TEST(ClientTest, ErrorsOfTheServer) {
  const ScriptedServer server([](const ScriptedRequest& request) -> ScriptedAnswer {
    if (request.target == "/plain") return {.code = 404, .body = "not here"};
    if (request.target == "/redirect") {
      return {.code = 302, .headers = {"Location: /elsewhere"}, .body = ""};
    }
    return {.code = 409, .body = StatusJson(409, "Conflict", "changed\\nmeanwhile")};
  });
  const auto client = MakeClient(server);
  absl::Status status = client->Get(kConfigMaps, "ns", "a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(IsConflict(status));
  EXPECT_EQ(ReasonOf(status), "Conflict");
  EXPECT_EQ(std::string(status.message()), "changed meanwhile");
  status = client->Send({.path = "/plain"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()), "GET /plain: HTTP 404");
  status = client->Send({.path = "/redirect"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(HttpCodeOf(status), 302);
  EXPECT_EQ(server.requests().size(), 3U) << "redirects are not followed";
}

TEST(ClientTest, OnlyTheRightCertificateIsTrusted) {
  const ScriptedServer server([](const ScriptedRequest&) { return Ok("{}"); });
  Config other = server.config();
  other.ca = test::TestAuthority("other").pem();
  auto client = ValueOf(Client::Create(std::move(other)));
  EXPECT_EQ(client->Send({.path = "/"}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client->counters().retries, 0U) << "it would be no better";

  Config wrong_name = server.config();
  wrong_name.tls_server_name = "example.com";
  client = ValueOf(Client::Create(std::move(wrong_name)));
  EXPECT_EQ(client->Send({.path = "/"}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(server.requests(), IsEmpty());

  const ScriptedServer named(
      [](const ScriptedRequest&) { return Ok("{}"); },
      {.certificate_name = "kubernetes.default", .alternatives = "DNS:kubernetes.default"});
  Config config = named.config();
  config.tls_server_name = "kubernetes.default";
  client = ValueOf(Client::Create(std::move(config)));
  EXPECT_OK(client->Send({.path = "/"}));
  EXPECT_EQ(named.requests()[0].header("host"), absl::StrCat("127.0.0.1:", named.port()));

  Config blind = server.config();
  blind.ca.clear();
  blind.insecure_skip_tls_verify = true;
  EXPECT_OK(ValueOf(Client::Create(std::move(blind)))->Send({.path = "/"}));
}

TEST(ClientTest, ConfigurationsThatCanNotWork) {
  const auto code = [](Config config) { return Client::Create(std::move(config)).status().code(); };
  Config config;
  EXPECT_EQ(code(config.Copy()), absl::StatusCode::kInvalidArgument);
  config.server = "http://127.0.0.1:1";
  config.token = Secret("t");
  EXPECT_EQ(code(config.Copy()), absl::StatusCode::kInvalidArgument) << "a token in the clear";
  config.server = "https://127.0.0.1:1";
  config.token = Secret("a\r\nX: y");
  EXPECT_EQ(code(config.Copy()), absl::StatusCode::kInvalidArgument);
  config.token = Secret();
  config.ca = "not PEM";
  EXPECT_EQ(code(config.Copy()), absl::StatusCode::kInvalidArgument);
  config.ca = "";
  config.client_certificate_file = "/nowhere";
  EXPECT_EQ(code(config.Copy()), absl::StatusCode::kInvalidArgument) << "and no key";
  config.client_key_file = "/nowhere";
  EXPECT_EQ(code(config.Copy()), absl::StatusCode::kNotFound);
  config.client_certificate_file = config.client_key_file = "";
  config.as.groups = {"g"};
  EXPECT_EQ(code(config.Copy()), absl::StatusCode::kInvalidArgument);
  config.as.user = "u\r\nX: y";
  EXPECT_EQ(code(config.Copy()), absl::StatusCode::kInvalidArgument);
}

TEST(ClientTest, Impersonation) {
  const ScriptedServer server([](const ScriptedRequest&) { return Ok("{}"); });
  Config config = server.config();
  config.as = {.user = "u", .uid = "1", .groups = {"g"}, .extra = {{"a/b", {"v"}}}};
  EXPECT_OK(ValueOf(Client::Create(std::move(config)))->Send({.path = "/"}));
  const ScriptedRequest request = server.requests()[0];
  EXPECT_EQ(request.header("impersonate-user"), "u");
  EXPECT_EQ(request.header("impersonate-uid"), "1");
  EXPECT_EQ(request.header("impersonate-group"), "g");
  EXPECT_EQ(request.header("impersonate-extra-a%2fb"), "v");
}

TEST(ClientTest, ProxiesOfTheEnvironmentHaveNoEffect) {
  const ScriptedServer server([](const ScriptedRequest&) { return Ok("{}"); });
  setenv("https_proxy", "http://127.0.0.1:1", 1);
  setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
  const absl::Status status = MakeClient(server)->Send({.path = "/"}).status();
  unsetenv("https_proxy");
  unsetenv("ALL_PROXY");
  EXPECT_OK(status);
}

// --- Credentials.

TEST(ClientTest, ATokenFileIsReadAgainAfter401) {
  const TempDir dir;
  dir.Write("token", "first\n");
  const ScriptedServer server([](const ScriptedRequest& request) -> ScriptedAnswer {
    if (request.header("authorization") == "Bearer second") return Ok("{}");
    return {.code = 401, .body = StatusJson(401, "Unauthorized", "Unauthorized")};
  });
  Config config = server.config();
  config.token_file = dir / "token";
  const auto client = ValueOf(Client::Create(std::move(config)));
  EXPECT_EQ(client->Send({.path = "/"}).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(server.requests().size(), 2U) << "one repetition";
  dir.Write("token", "second\n");
  // Within the 50 s for which a token is kept: only the 401 makes it read the file.
  EXPECT_OK(client->Send({.method = "POST", .path = "/"}));
  EXPECT_EQ(server.requests().size(), 4U);
  EXPECT_OK(client->Send({.path = "/"}));
  EXPECT_EQ(server.requests().size(), 5U);
  // The old one is used on.
  unlink((dir / "token").c_str());
  EXPECT_OK(client->Send({.path = "/"}));
}

TEST(ClientTest, ClientCertificatesAreReadAgain) {
  const ScriptedServer server([](const ScriptedRequest&) { return Ok("{}"); });
  const TempDir dir;
  const auto write = [&](const std::string& name) {
    const test::PemIdentity identity = server.authority().Issue({.name = name});
    dir.Write("cert", identity.certificate);
    dir.Write("key", identity.key);
  };
  write("first");
  Config config = server.config();
  config.client_certificate_file = dir / "cert";
  config.client_key_file = dir / "key";
  const auto client = ValueOf(Client::Create(std::move(config)));
  ASSERT_OK(client->Send({.path = "/"}));
  write("second");
  ASSERT_OK(client->Send({.path = "/"}));
  EXPECT_EQ(server.requests()[0].client, "first");
  EXPECT_EQ(server.requests()[1].client, "second") << "on a connection of its own";
}

TEST(ClientTest, Basic) {
  const ScriptedServer server([](const ScriptedRequest&) { return Ok("{}"); });
  Config config = server.config();
  config.username = "u";
  config.password = Secret("p");
  EXPECT_OK(ValueOf(Client::Create(std::move(config)))->Send({.path = "/"}));
  EXPECT_EQ(server.requests()[0].header("authorization"), "Basic dTpw");
}

TEST(ClientTest, APluginRunsOncePerTokenAndAgainAfter401) {
  const TempDir dir;
  dir.Write("plugin",
            "#!/bin/sh\necho x >>" + (dir / "runs") +
                "\necho '{\"kind\":\"ExecCredential\",\"apiVersion\":"
                "\"client.authentication.k8s.io/v1\",\"status\":{\"token\":\"t'$(wc -l <" +
                (dir / "runs") + ")'\"}}'\n");
  chmod((dir / "plugin").c_str(), 0755);
  const ScriptedServer server([](const ScriptedRequest& request) -> ScriptedAnswer {
    if (request.header("authorization") == "Bearer t1" && request.number > 3) {
      return {.code = 401, .body = StatusJson(401, "Unauthorized", "Unauthorized")};
    }
    return Ok("{}");
  });
  Config config = server.config();
  config.exec =
      ExecPlugin{.command = dir / "plugin", .api_version = "client.authentication.k8s.io/v1"};
  const auto client = ValueOf(Client::Create(std::move(config)));
  for (int i = 0; i < 4; ++i) EXPECT_OK(client->Send({.path = "/"})) << i;
  const std::vector<ScriptedRequest> requests = server.requests();
  ASSERT_EQ(requests.size(), 5U);
  EXPECT_EQ(requests[3].header("authorization"), "Bearer t1");
  EXPECT_EQ(requests[4].header("authorization"), "Bearer t2");
}

TEST(ClientTest, APluginThatFailsIsUnavailable) {
  const ScriptedServer server([](const ScriptedRequest&) { return Ok("{}"); });
  Config config = server.config();
  config.exec =
      ExecPlugin{.command = "/nowhere/plugin", .api_version = "client.authentication.k8s.io/v1"};
  const auto client = ValueOf(Client::Create(std::move(config)));
  EXPECT_EQ(client->Send({.path = "/"}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(HttpCodeOf(client->Send({.path = "/"}).status()), 0);
  EXPECT_THAT(server.requests(), IsEmpty());
}

TEST(ClientTest, DestructionWhileAPluginRuns) {
  const TempDir dir;
  dir.Write("plugin", "#!/bin/sh\nsleep 1000\n");
  chmod((dir / "plugin").c_str(), 0755);
  const ScriptedServer server([](const ScriptedRequest&) { return Ok("{}"); });
  Config config = server.config();
  config.exec =
      ExecPlugin{.command = dir / "plugin", .api_version = "client.authentication.k8s.io/v1"};
  auto client = ValueOf(Client::Create(std::move(config)));
  std::promise<absl::Status> result;
  client->SendAsync({.path = "/"}, {},
                    [&](absl::StatusOr<Response> r) { result.set_value(r.status()); });
  std::this_thread::sleep_for(milliseconds(100));
  client.reset();
  EXPECT_EQ(result.get_future().get().code(), absl::StatusCode::kCancelled);
}

// --- Lists.

TEST(ClientTest, AllPages) {
  const ScriptedServer server([](const ScriptedRequest& request) -> ScriptedAnswer {
    const auto page = [](const std::string& names, const std::string& next) {
      std::string items;
      for (const char c : names) {
        absl::StrAppend(&items, items.empty() ? "" : ",", R"({"metadata":{"name":")",
                        std::string(1, c), R"(","namespace":"ns"}})");
      }
      return Ok(absl::StrCat(R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{)",
                             R"("resourceVersion":"9","continue":")", next, R"("},"items":[)",
                             items, "]}"));
    };
    if (request.target.find("continue=c1") != std::string::npos) return page("cd", "c2");
    if (request.target.find("continue=c2") != std::string::npos) {
      return {.code = 410, .body = StatusJson(410, "Expired", "too old")};
    }
    if (request.target.find("limit=") != std::string::npos) return page("ab", "c1");
    return page("abcde", "");
  });
  const auto client = MakeClient(server);
  const ObjectList list = ValueOf(client->ListAll(kConfigMaps, "ns"));
  std::string names;
  for (const Object& item : list.items) names += item.name();
  EXPECT_EQ(names, "abcde") << "pages of two lists are not mixed";
  EXPECT_EQ(server.requests().size(), 4U);
  EXPECT_THAT(server.requests()[0].target, HasSubstr("limit=500"));
}

TEST(ClientTest, PagesThatNeverEnd) {
  const ScriptedServer server([](const ScriptedRequest&) {
    return Ok(R"({"kind":"ConfigMapList","metadata":{"continue":"same"},"items":[]})");
  });
  const absl::Status status = MakeClient(server)->ListAll(kConfigMaps, "ns").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server.requests().size(), 2U);
}

// No failure looks like an empty list.
TEST(ClientTest, WrongLists) {
  std::string body;
  const ScriptedServer server([&](const ScriptedRequest&) { return Ok(body); });
  const auto client = MakeClient(server);
  const auto list = [&](const std::string& text) {
    body = text;
    return client->List(kConfigMaps, "ns");
  };
  const std::string head = R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{},)";
  EXPECT_EQ(ValueOf(list(head + R"("items":null})")).items.size(), 0U) << "as Go writes it";
  EXPECT_EQ(ValueOf(list(head + R"("items":[]})")).items.size(), 0U);
  for (const std::string& text :
       {std::string("{}"), std::string("null"), std::string("[]"), std::string(""),
        std::string(R"({"kind":"ConfigMapList","items":[]})"),
        std::string(R"({"kind":"SecretList","metadata":{},"items":[]})"),
        StatusJson(404, "NotFound", "x"), head + R"("x":1})", head + R"("items":{}})",
        head + R"("items":[1]})", head + R"("items":[{}]})", head + R"("items":[{"metadata":[]}]})",
        head + R"("items":[{"metadata":{"name":"a","namespace":"other"}}]})",
        head + R"("items":[{"kind":"Secret","metadata":{"name":"a","namespace":"ns"}}]})",
        head + R"("items":[{"metadata":{"name":"a","namespace":"ns","labels":{"l":1}}}]})",
        std::string(R"({"kind":"ConfigMapList","metadata":{"continue":5},"items":[]})")}) {
    EXPECT_EQ(list(text).status().code(), absl::StatusCode::kUnavailable) << text;
  }
}

TEST(ClientTest, AnotherObjectThanWasAskedFor) {
  std::string body;
  const ScriptedServer server([&](const ScriptedRequest&) { return Ok(body); });
  const auto client = MakeClient(server);
  for (const std::string& text :
       {ConfigMapJson("ns", "b", "v"), ConfigMapJson("other", "a", "v"), std::string("{}"),
        std::string(
            R"({"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","namespace":"ns"}})"),
        std::string(
            R"({"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"a","namespace":"ns"}})"),
        std::string("<html>hunter2</html>"), std::string("[]"),
        std::string(R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":["a"]}})")}) {
    body = text;
    const absl::Status status = client->Get(kConfigMaps, "ns", "a").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hunter2")));
  }
  body =
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"ns"},"data":5})";
  EXPECT_EQ(client->Get<ConfigMap>("ns", "a").status().code(), absl::StatusCode::kUnavailable);
}

// --- Tokens.

TEST(ClientTest, CreateToken) {
  std::string body =
      R"({"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{"name":"sa"},)"
      R"("status":{"token":"tok","expirationTimestamp":"2024-05-01T10:00:00Z"}})";
  const ScriptedServer server(
      [&](const ScriptedRequest&) -> ScriptedAnswer { return {.code = 201, .body = body}; });
  const auto client = MakeClient(server);
  TokenOptions options;
  options.audiences = {"a"};
  options.lifetime = seconds(600);
  const ServiceAccountToken token = ValueOf(client->CreateToken("ns", "sa", options));
  EXPECT_EQ(token.token.Reveal(), "tok");
  EXPECT_EQ(FormatTime(token.expires), "2024-05-01T10:00:00Z");
  const ScriptedRequest request = server.requests()[0];
  EXPECT_EQ(request.method + " " + request.target,
            "POST /api/v1/namespaces/ns/serviceaccounts/sa/token");
  EXPECT_THAT(request.body, HasSubstr(R"("spec":{"audiences":["a"],"expirationSeconds":600})"));
  body = R"({"kind":"TokenRequest","status":{}})";
  EXPECT_EQ(client->CreateToken("ns", "sa").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace client_test
}  // namespace cbt::kube
