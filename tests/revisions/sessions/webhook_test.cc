#include "programs/revisions/sessions/webhook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/object.h"
#include "ops/event_log.h"
#include "programs/revisions/sessions/counters.h"
#include "tests/kube/support/fake_api.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace {

using kube::Object;
using kube::http_server::Request;
using kube::http_server::Response;
using kube::sessions::Counters;
using kube::sessions::Webhook;
using testing::HasSubstr;

std::string Review(const std::string& operation = "CREATE",
                   const std::string& resource = "snapshotsessionrequests",
                   const std::string& user = R"("username":"app","uid":"u1","groups":["g"],)"
                                             R"("extra":{"example.com/key":["x"]})") {
  return absl::StrCat(
      R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"r1",)"
      R"("resource":{"group":"cbt.storage.k8s.io","version":"v1alpha1","resource":")",
      resource, R"("},"namespace":"prod","operation":")", operation, R"(","userInfo":{)", user,
      R"(},"object":{"spec":{"snapshots":["monday"]}}}})");
}

class WebhookTest : public testing::Test {
 protected:
  WebhookTest() {
    api_.SetPlan([this](const FakeRequest& request) {
      const std::lock_guard lock(mutex_);
      asked_ = request;
      return plan_;
    });
    kube::Config config;
    config.server = api_.url();
    client_ = ValueOf(kube::Client::Create(std::move(config), {.max_retries = 0}));
  }

  void Say(const std::string& status) {
    plan_ = {.code = 201,
             .body = absl::StrCat(R"({"kind":"SubjectAccessReview",)"
                                  R"("apiVersion":"authorization.k8s.io/v1","spec":{},"status":)",
                                  status, "}")};
  }
  Response Send(Request request) {
    webhook_ = std::make_unique<Webhook>(*client_, std::chrono::seconds(5), counters_, log_);
    return SendAgain(std::move(request));
  }
  Response SendAgain(const Request& request) {
    std::promise<Response> answer;
    webhook_->Handle(request, [&answer](Response response) { answer.set_value(response); });
    return answer.get_future().get();
  }
  Object Ask(const std::string& body) {
    const Response response = Send({.method = "POST", .path = Webhook::kPath, .body = body});
    EXPECT_EQ(response.code, 200);
    EXPECT_EQ(response.content_type, "application/json");
    return ValueOf(Object::Parse(response.body));
  }
  static int CodeOf(const Object& answer) {
    EXPECT_FALSE(ValueOf(answer.Bool({"response", "allowed"})));
    return static_cast<int>(ValueOf(answer.Int({"response", "status", "code"})));
  }

  FakeApi api_;
  std::mutex mutex_;
  FakePlan plan_;
  FakeRequest asked_;
  ops::MetricSet metrics_;
  Counters counters_{metrics_};
  ops::EventLog log_{nullptr};
  std::unique_ptr<Webhook> webhook_;
  std::unique_ptr<kube::Client> client_;  // last: what it answers uses the others
};

TEST_F(WebhookTest, S8TheCreatorsRightIsAskedFor) {
  Say(R"({"allowed":true})");
  const Object answer = Ask(Review());
  EXPECT_TRUE(ValueOf(answer.Bool({"response", "allowed"})));
  EXPECT_EQ(ValueOf(answer.String({"response", "uid"})), "r1");
  EXPECT_EQ(asked_.method, "POST");
  EXPECT_EQ(asked_.path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
  const Object question = ValueOf(Object::Parse(asked_.body));
  const Object wanted = ValueOf(Object::Parse(
      R"({"resourceAttributes":{"namespace":"prod","verb":"get","group":"snapshot.storage.k8s.io",)"
      R"("version":"v1","resource":"volumesnapshots"},"user":"app","uid":"u1","groups":["g"],)"
      R"("extra":{"example.com/key":["x"]}})"));
  EXPECT_TRUE(ValueOf(question.Child({"spec"})) == wanted) << asked_.body;
  EXPECT_EQ(counters_.reviews_allowed, 1u);
}

TEST_F(WebhookTest, S8WhoHasNoRightIsRefused) {
  for (const char* const status : {R"({"allowed":false})", R"({"allowed":true,"denied":true})",
                                   R"({"allowed":false,"denied":true,"reason":"because"})", "{}"}) {
    Say(status);
    const Object answer = Ask(Review());
    EXPECT_EQ(CodeOf(answer), 403) << status;
    EXPECT_EQ(ValueOf(answer.String({"response", "status", "reason"})), "Forbidden");
    EXPECT_THAT(ValueOf(answer.String({"response", "status", "message"})),
                HasSubstr("\"app\" may not get volumesnapshots in namespace \"prod\""));
  }
  EXPECT_EQ(counters_.reviews_denied, 4u);
}

TEST_F(WebhookTest, S8WithoutAnAnswerNobodyIsAllowed) {
  plan_ = {.code = 500, .body = R"({"kind":"Status","apiVersion":"v1","code":500})"};
  EXPECT_EQ(CodeOf(Ask(Review())), 503);
  plan_ = {.code = 201, .body = "[]"};
  EXPECT_EQ(CodeOf(Ask(Review())), 503);
  api_.SetReachable(false);
  api_.Disconnect();
  EXPECT_EQ(CodeOf(Ask(Review())), 503);
  EXPECT_EQ(counters_.reviews_failed, 3u);
}

// Anybody can send reviews, and each would be a question to the API server.
TEST_F(WebhookTest, YReviewsOfOneAddressAreLimited) {
  Say(R"({"allowed":true})");
  const Request many = {
      .method = "POST", .path = Webhook::kPath, .body = Review(), .peer = "10.0.0.1"};
  Request other = many;
  other.peer = "10.0.0.2";
  EXPECT_EQ(Send(many).code, 200);
  int answered = 1;
  int refused = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 600; ++i) {
    SendAgain(many).code == 200 ? ++answered : ++refused;
    // Who asks seldom notices nothing.
    if (i % 200 == 199) {
      EXPECT_EQ(SendAgain(other).code, 200);
    }
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(answered, Webhook::kBurst + time.count() * Webhook::kRate + 1);
  EXPECT_GE(answered, 50);
  EXPECT_EQ(SendAgain(other).code, 200);
}

TEST_F(WebhookTest, ZAReviewsOfManyTinyValuesAreRefused) {
  std::string body = R"({"kind":"AdmissionReview","x":[0)";
  for (int i = 0; i < 1'000'000; ++i) body += ",0";
  EXPECT_EQ(Send({.method = "POST", .path = Webhook::kPath, .body = body + "]}"}).code, 400);
  EXPECT_EQ(asked_.number, 0);
}

TEST_F(WebhookTest, AUserWithoutANameIsRefused) {
  Say(R"({"allowed":true})");
  EXPECT_EQ(CodeOf(Ask(Review("CREATE", "snapshotsessionrequests", ""))), 403);
  EXPECT_EQ(asked_.number, 0);
}

TEST_F(WebhookTest, WhatItIsNotForIsRefused) {
  Say(R"({"allowed":true})");
  for (const char* const operation : {"UPDATE", "DELETE", "CONNECT"}) {
    EXPECT_EQ(CodeOf(Ask(Review(operation))), 400) << operation;
  }
  EXPECT_EQ(CodeOf(Ask(Review("CREATE", "snapshotsessiondata"))), 400);
  EXPECT_EQ(Send({.method = "POST", .path = "/", .body = Review()}).code, 404);
  EXPECT_EQ(Send({.method = "GET", .path = Webhook::kPath}).code, 405);
  EXPECT_EQ(Send({.method = "POST", .path = Webhook::kPath, .body = "{}"}).code, 400);
  EXPECT_EQ(asked_.number, 0);
}

}  // namespace
}  // namespace cbt::test
