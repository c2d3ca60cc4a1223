// Who may do what: how often the API server is asked, and that nothing but its yes is one.
#include "programs/cluster/access_reviewer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "programs/cluster/objects.h"
#include "tests/kube/support/fake_api.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace access_reviewer_test {

using kube::SubjectAccessReview;
using kube::cluster::AccessReviewer;
using kube::cluster::MayGetSnapshots;

class AccessReviewerTest : public testing::Test {
 protected:
  AccessReviewerTest() {
    api_.SetPlan([this](const FakeRequest&) {
      const std::lock_guard lock(mutex_);
      ++asked_;
      return plan_;
    });
    Say(R"({"allowed":true})");
    kube::Config config;
    config.server = api_.url();
    client_ = ValueOf(kube::Client::Create(std::move(config), {.max_retries = 0}));
    reviewer_ = std::make_unique<AccessReviewer>(*client_, std::chrono::seconds(5), log_);
  }

  void Say(const std::string& status) {
    const std::lock_guard lock(mutex_);
    plan_ = {.code = 201,
             .body = absl::StrCat(R"({"kind":"SubjectAccessReview",)"
                                  R"("apiVersion":"authorization.k8s.io/v1","spec":{})",
                                  status.empty() ? "" : ",\"status\":", status, "}")};
  }
  static SubjectAccessReview Question(
      const std::function<void(SubjectAccessReview&)>& change = {}) {
    SubjectAccessReview question = MayGetSnapshots({.username = "app",
                                                    .uid = "u",
                                                    .groups = {"g", "h"},
                                                    .extra = {{"k", {"v", "w"}}, {"l", {}}}},
                                                   "prod");
    if (change) change(question);
    return question;
  }
  int asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  FakeApi api_;
  mutable std::mutex mutex_;
  FakePlan plan_;
  int asked_ = 0;
  ops::EventLog log_{nullptr};
  std::unique_ptr<AccessReviewer> reviewer_;
  std::unique_ptr<kube::Client> client_;  // last: what it answers uses the others
};

TEST_F(AccessReviewerTest, AnAnswerIsKeptForTheSameQuestionOnly) {
  EXPECT_OK(reviewer_->Wait(Question()));
  EXPECT_OK(reviewer_->Wait(Question()));
  EXPECT_EQ(asked(), 1);
  const std::vector<std::function<void(SubjectAccessReview&)>> changes = {
      [](auto& q) { q.resource->name_space = "dev"; },
      [](auto& q) { q.resource->verb = "list"; },
      [](auto& q) { q.resource->group = "x"; },
      [](auto& q) { q.resource->version = "x"; },
      [](auto& q) { q.resource->resource = "x"; },
      [](auto& q) { q.resource->subresource = "x"; },
      [](auto& q) { q.resource->name = "x"; },
      [](auto& q) { q.user.username = "x"; },
      [](auto& q) { q.user.uid = "x"; },
      [](auto& q) { q.user.groups = {"g"}; },
      [](auto& q) { q.user.groups = {"gh"}; },
      [](auto& q) {
        q.user.extra = {{"k", {"v"}}, {"w", {}}, {"l", {}}};
      },
      [](auto& q) {
        q.user.extra = {{"k", {"v", "w", "l"}}};
      },
      [](auto& q) {
        q.resource.reset();
        q.non_resource = {.path = "/apis", .verb = "get"};
      },
      [](auto& q) {
        q.resource.reset();
        q.non_resource = {.path = "/apis", .verb = "put"};
      }};
  int expected = 1;
  for (const auto& change : changes) {
    EXPECT_OK(reviewer_->Wait(Question(change)));
    EXPECT_EQ(asked(), ++expected);
  }
}

TEST_F(AccessReviewerTest, OnlyAYesAllows) {
  int number = 0;
  const auto code = [&] {
    return reviewer_
        ->Wait(Question([&](auto& q) { q.user.username = absl::StrCat("user", ++number); }))
        .code();
  };
  for (const char* const no : {"{}", R"({"allowed":false})", R"({"allowed":true,"denied":true})"}) {
    Say(no);
    EXPECT_EQ(code(), absl::StatusCode::kPermissionDenied) << no;
  }
  Say("");
  EXPECT_EQ(code(), absl::StatusCode::kUnavailable);
  plan_ = {.code = 500, .body = R"({"kind":"Status","apiVersion":"v1","code":500})"};
  EXPECT_EQ(code(), absl::StatusCode::kUnavailable);
}

TEST_F(AccessReviewerTest, ADenialNamesTheRightAndTheUser) {
  Say(R"({"allowed":false,"reason":"a secret of the cluster"})");
  EXPECT_EQ(reviewer_->Wait(Question()).message(),
            R"(user "app" cannot get resource "volumesnapshots" in API group )"
            R"("snapshot.storage.k8s.io" in the namespace "prod")");
}

TEST_F(AccessReviewerTest, AnewMeansNow) {
  const auto ask = [this] {
    return kube::cluster::Await<absl::Status>(
        [this](rpc::DoneStatus done) { reviewer_->AskAnew(Question(), std::move(done)); });
  };
  EXPECT_OK(ask());
  Say(R"({"allowed":false})");
  EXPECT_EQ(ask().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(AccessReviewerTest, AUserWithoutANameIsDenied) {
  const auto unnamed = [](auto& q) { q.user = {}; };
  EXPECT_EQ(reviewer_->Wait(Question(unnamed)).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(asked(), 0);
}

TEST_F(AccessReviewerTest, MastersMayDoEverything) {
  Say(R"({"allowed":false})");
  EXPECT_OK(reviewer_->Wait(Question([](auto& q) { q.user.groups = {"system:masters"}; })));
  EXPECT_EQ(asked(), 0);
}

}  // namespace access_reviewer_test
}  // namespace cbt::test
