#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/controller.h"
#include "cbt/kube/object.h"
#include "tests/kube/support/fake_api.h"
#include "tests/kube/watch/cache_probe.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace leader_election_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

constexpr char kList[] = "/apis/coordination.k8s.io/v1/namespaces/n/leases";
constexpr char kOne[] = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";

// One lease with optimistic locking, in the plan of a FakeApi.
class LeaseServer {
 public:
  LeaseServer() {
    api_.SetPlan([this](const FakeRequest& request) { return Answer(request); });
  }

  std::string url() const { return api_.url(); }
  std::optional<kube::Object> lease() const {
    std::lock_guard lock(mutex_);
    return lease_;
  }
  std::string Holder() const {
    std::lock_guard lock(mutex_);
    return HolderLocked();
  }
  void Change(const std::function<void(kube::Object&)>& change) {
    std::lock_guard lock(mutex_);
    change(*lease_);
    lease_->SetString({"metadata", "resourceVersion"}, std::to_string(++version_));
  }
  void Delete() {
    std::lock_guard lock(mutex_);
    lease_.reset();
  }
  // Looked at before each request; what it returns is the answer, if it has a body.
  void SetFault(std::function<FakePlan(const FakeRequest&)> fault) {
    std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  std::vector<std::string> methods() const {
    std::vector<std::string> methods;
    for (const FakeRequest& request : api_.requests()) methods.push_back(request.method);
    return methods;
  }

  static FakePlan Refusal(int code, const std::string& reason) {
    return {
        .code = code,
        .body = absl::StrCat(
            R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":")",
            reason, "\",\"code\":", code, "}")};
  }

 private:
  std::string HolderLocked() const {
    if (!lease_.has_value()) return "-";
    return ValueOf(lease_->OptionalString({"spec", "holderIdentity"})).value_or("");
  }

  FakePlan Answer(const FakeRequest& request) {
    std::function<FakePlan(const FakeRequest&)> fault;
    {
      std::lock_guard lock(mutex_);
      fault = fault_;
    }
    FakePlan plan = fault ? fault(request) : FakePlan{};
    if (!plan.body.empty()) return plan;
    std::lock_guard lock(mutex_);
    const FakePlan answer = Act(request);
    plan.code = answer.code;
    plan.body = answer.body;
    return plan;
  }

  FakePlan Act(const FakeRequest& request) {
    if (request.method == "POST" && request.path == kList) {
      if (lease_.has_value()) return Refusal(409, "AlreadyExists");
      lease_ = ValueOf(kube::Object::Parse(request.body));
    } else if (request.path == kOne && !lease_.has_value()) {
      return Refusal(404, "NotFound");
    } else if (request.path == kOne && request.method == "PUT") {
      kube::Object wanted = ValueOf(kube::Object::Parse(request.body));
      if (wanted.resource_version() != lease_->resource_version()) return Refusal(409, "Conflict");
      lease_ = std::move(wanted);
    } else if (request.path != kOne || request.method != "GET") {
      return Refusal(405, "MethodNotAllowed");
    }
    if (request.method != "GET") {
      lease_->SetString({"metadata", "resourceVersion"}, std::to_string(++version_));
    }
    return {.body = lease_->ToJson()};
  }

  mutable std::mutex mutex_;
  std::optional<kube::Object> lease_;
  int version_ = 0;
  std::function<FakePlan(const FakeRequest&)> fault_;
  FakeApi api_;  // last: its threads use the others
};

kube::LeaderElectionOptions FastElection(const std::string& identity) {
  return {.name_space = "n",
          .name = "l",
          .identity = identity,
          .lease_duration = seconds(2),
          .renew_deadline = milliseconds(1500),
          .retry_period = milliseconds(100)};
}

class LeaderElectionTest : public testing::Test {
 protected:
  struct Candidate {
    std::unique_ptr<kube::Client> client;
    std::atomic<int> started{0};
    std::atomic<int> stopped{0};
    std::unique_ptr<kube::LeaderElector> elector;
  };

  std::unique_ptr<Candidate> Join(kube::LeaderElectionOptions options) {
    auto candidate = std::make_unique<Candidate>();
    candidate->client = ClientOf(server_.url());
    options.on_started_leading = [c = candidate.get()] { ++c->started; };
    if (!options.on_stopped_leading)
      options.on_stopped_leading = [c = candidate.get()] { ++c->stopped; };
    candidate->elector =
        ValueOf(kube::LeaderElector::Create(*candidate->client, std::move(options)));
    return candidate;
  }

  LeaseServer server_;
};

TEST_F(LeaderElectionTest, AloneItLeadsAndRenews) {
  std::vector<std::string> leaders;
  kube::LeaderElectionOptions options = FastElection("one");
  options.on_new_leader = [&](const std::string& identity) { leaders.push_back(identity); };
  auto one = Join(std::move(options));
  ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
  EXPECT_TRUE(one->elector->IsLeader());
  EXPECT_EQ(one->elector->Leader(), "one");
  EXPECT_OK(one->elector->CheckHealth());
  const kube::Object first = *server_.lease();
  ASSERT_TRUE(Eventually([&] { return !(*server_.lease() == first); }));
  EXPECT_EQ(ValueOf(server_.lease()->String({"spec", "acquireTime"})),
            ValueOf(first.String({"spec", "acquireTime"})));
  ASSERT_TRUE(Eventually([&] { return server_.methods().size() > 6; }));
  // A leader writes from what it wrote last; it need not read.
  EXPECT_THAT(server_.methods(), testing::Contains("GET").Times(1));
  one->elector.reset();
  EXPECT_EQ(one->stopped, 1);
  EXPECT_EQ(server_.Holder(), "");
  EXPECT_EQ(ValueOf(server_.lease()->Int({"spec", "leaseDurationSeconds"})), 1);
  EXPECT_THAT(leaders, ElementsAre("one"));
}

TEST_F(LeaderElectionTest, ReleasesOnlyAfterItHasStopped) {
  std::string holder;
  kube::LeaderElectionOptions options = FastElection("one");
  options.on_stopped_leading = [&] { holder = server_.Holder(); };
  auto one = Join(std::move(options));
  ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
  one->elector.reset();
  EXPECT_EQ(holder, "one");
  EXPECT_EQ(server_.Holder(), "");
}

TEST_F(LeaderElectionTest, AnotherTakesOverAtOnceAfterARelease) {
  auto one = Join(FastElection("one"));
  ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
  auto two = Join(FastElection("two"));
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(two->started, 0);
  EXPECT_FALSE(two->elector->IsLeader());
  EXPECT_EQ(two->elector->Leader(), "one");
  one->elector.reset();
  const Clock::time_point released = Clock::now();
  ASSERT_TRUE(Eventually([&] { return two->started == 1; }));
  EXPECT_LT(Clock::now() - released, milliseconds(1500));
  EXPECT_EQ(ValueOf(server_.lease()->Int({"spec", "leaseTransitions"})), 1);
}

TEST_F(LeaderElectionTest, AnotherWaitsForTheLeaseWithoutARelease) {
  kube::LeaderElectionOptions options = FastElection("one");
  options.release = false;
  auto one = Join(std::move(options));
  ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
  auto two = Join(FastElection("two"));
  std::this_thread::sleep_for(milliseconds(300));
  const Clock::time_point left = Clock::now();
  one->elector.reset();
  EXPECT_EQ(server_.Holder(), "one");
  ASSERT_TRUE(Eventually([&] { return two->started == 1; }));
  EXPECT_GE(Clock::now() - left, milliseconds(1500));
  EXPECT_EQ(ValueOf(server_.lease()->Int({"spec", "leaseTransitions"})), 1);
}

TEST_F(LeaderElectionTest, StopsWhenItCantRenewAndLeadsAgain) {
  for (const std::string way : {"refused", "no answer"}) {
    SCOPED_TRACE(way);
    server_.SetFault({});
    auto one = Join(FastElection("one"));
    ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
    const Clock::time_point begin = Clock::now();
    server_.SetFault([way](const FakeRequest&) -> FakePlan {
      if (way == "refused") return LeaseServer::Refusal(403, "Forbidden");
      return {.delay_ms = 3000};
    });
    ASSERT_TRUE(Eventually([&] { return one->stopped == 1; }));
    EXPECT_FALSE(one->elector->IsLeader());
    EXPECT_FALSE(one->elector->last_error().ok());
    EXPECT_GE(Clock::now() - begin, milliseconds(1300));
    EXPECT_LE(Clock::now() - begin, milliseconds(2000)) << "longer than others would wait";
    server_.SetFault({});
    ASSERT_TRUE(Eventually([&] { return one->started == 2; }));
    EXPECT_TRUE(one->elector->IsLeader());
    one->elector.reset();
    EXPECT_EQ(one->stopped, 2);
  }
}

TEST_F(LeaderElectionTest, AShortFailureCostsNothing) {
  auto one = Join(FastElection("one"));
  ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
  std::atomic<int> failures{3};
  server_.SetFault([&](const FakeRequest&) -> FakePlan {
    if (failures.fetch_sub(1) > 0) return LeaseServer::Refusal(403, "Forbidden");
    return {};
  });
  ASSERT_TRUE(Eventually([&] { return failures < -5; }));
  EXPECT_EQ(one->stopped, 0);
  EXPECT_TRUE(one->elector->IsLeader());
}

TEST_F(LeaderElectionTest, StopsWhenSomebodyElseHasTheLease) {
  auto one = Join(FastElection("one"));
  ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
  server_.Change([](kube::Object& lease) {
    lease.SetString({"spec", "holderIdentity"}, "robber");
    lease.SetInt({"spec", "leaseDurationSeconds"}, 1);
  });
  ASSERT_TRUE(Eventually([&] { return one->stopped == 1; }));
  EXPECT_EQ(one->elector->Leader(), "robber");
  // Who never renews it again.
  ASSERT_TRUE(Eventually([&] { return one->started == 2; }));
}

TEST_F(LeaderElectionTest, ALeaseThatIsDeletedIsMadeAgain) {
  auto one = Join(FastElection("one"));
  ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
  server_.Delete();
  ASSERT_TRUE(Eventually([&] { return server_.Holder() == "one"; }));
  EXPECT_EQ(one->stopped, 0);
}

// The answer to a renewal is lost after it took effect: the resource version is then another.
TEST_F(LeaderElectionTest, ARenewalWithoutAnAnswerIsNoLoss) {
  std::atomic<int> puts{0};
  server_.SetFault([&](const FakeRequest& request) -> FakePlan {
    FakePlan plan;
    if (request.method == "PUT" && ++puts == 2)
      plan.delay_ms = 900;  // longer than it is waited for
    return plan;
  });
  auto one = Join(FastElection("one"));
  ASSERT_TRUE(Eventually([&] { return puts > 6; }));
  EXPECT_EQ(one->started, 1);
  EXPECT_EQ(one->stopped, 0);
}

TEST_F(LeaderElectionTest, CallbacksMayThrow) {
  kube::LeaderElectionOptions options = FastElection("one");
  options.on_new_leader = [](const std::string&) { throw std::runtime_error("thrown"); };
  options.on_stopped_leading = [] { throw 7; };
  auto one = Join(std::move(options));
  ASSERT_TRUE(Eventually([&] { return one->started == 1; }));
  one->elector.reset();
  EXPECT_EQ(server_.Holder(), "");
}

TEST_F(LeaderElectionTest, HealthFailsWhenALeaderHangs) {
  std::atomic<bool> hang{true};
  kube::LeaderElectionOptions options = FastElection("one");
  std::atomic<bool> started{false};
  const auto client = ClientOf(server_.url());
  options.on_started_leading = [&] {
    started = true;
    while (hang) std::this_thread::sleep_for(milliseconds(1));
  };
  auto elector = ValueOf(kube::LeaderElector::Create(*client, options));
  ASSERT_TRUE(Eventually([&] { return started.load(); }));
  EXPECT_OK(elector->CheckHealth(milliseconds(0)));
  EXPECT_TRUE(elector->IsLeader());
  ASSERT_TRUE(Eventually([&] { return !elector->CheckHealth(milliseconds(100)).ok(); }));
  EXPECT_FALSE(elector->IsLeader());
  EXPECT_OK(elector->CheckHealth(seconds(20)));
  hang = false;
  ASSERT_TRUE(Eventually([&] { return elector->CheckHealth(milliseconds(100)).ok(); }));
}

// Random faults of every kind, several candidates: never two at once.
TEST_F(LeaderElectionTest, NeverTwoAtOnce) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mutex mutex;
  std::mt19937 random(seed);
  std::atomic<int> phase{0};
  server_.SetFault([&](const FakeRequest&) -> FakePlan {
    std::lock_guard lock(mutex);
    FakePlan plan;
    // Good and bad times in turns: without bad ones nothing is tried, without good ones no one
    // leads.
    if (phase % 2 == 0) return plan;
    switch (random() % 6) {
      case 0:
        return LeaseServer::Refusal(500, "InternalError");
      case 1:
        return LeaseServer::Refusal(403, "Forbidden");
      case 2:
      case 3:
        plan.delay_ms = static_cast<int>(random() % 1500);
        break;
      default:
        break;
    }
    return plan;
  });
  std::atomic<int> acting{0};
  std::atomic<int> together{0};
  std::atomic<int> terms{0};
  std::vector<std::unique_ptr<kube::Client>> clients;
  std::vector<std::unique_ptr<kube::LeaderElector>> electors;
  for (const char* name : {"one", "two", "three"}) {
    clients.push_back(ClientOf(server_.url()));
    kube::LeaderElectionOptions options = FastElection(name);
    options.lease_duration = seconds(1);
    options.renew_deadline = milliseconds(600);
    options.on_started_leading = [&] {
      ++terms;
      if (++acting > 1) ++together;
    };
    options.on_stopped_leading = [&] { --acting; };
    electors.push_back(ValueOf(kube::LeaderElector::Create(*clients.back(), std::move(options))));
  }
  const Clock::time_point until = Clock::now() + seconds(8);
  int two_leaders = 0;
  for (int i = 0; Clock::now() < until; ++i) {
    if (i % 1500 == 1499) ++phase;
    int leaders = 0;
    for (const auto& elector : electors) leaders += elector->IsLeader() ? 1 : 0;
    if (leaders > 1) ++two_leaders;
    std::this_thread::sleep_for(milliseconds(1));
  }
  electors.clear();
  EXPECT_EQ(two_leaders, 0);
  EXPECT_EQ(together, 0);
  EXPECT_EQ(acting, 0);
  EXPECT_GE(terms, 1);
}

TEST_F(LeaderElectionTest, RefusesOptionsThatCantWork) {
  const auto client = ClientOf(server_.url());
  const auto code = [&](const std::function<void(kube::LeaderElectionOptions&)>& change) {
    kube::LeaderElectionOptions options = FastElection("one");
    change(options);
    return kube::LeaderElector::Create(*client, std::move(options)).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](auto& o) { o.name = ""; }), kInvalid);
  EXPECT_EQ(code([](auto& o) { o.name = "a/b"; }), kInvalid);
  EXPECT_EQ(code([](auto& o) { o.name_space = ""; }), kInvalid);
  EXPECT_EQ(code([](auto& o) { o.identity = ""; }), kInvalid);
  EXPECT_EQ(code([](auto& o) { o.lease_duration = o.renew_deadline; }), kInvalid);
  EXPECT_EQ(code([](auto& o) { o.lease_duration = milliseconds(2500); }), kInvalid);
  EXPECT_EQ(code([](auto& o) { o.lease_duration = seconds(0); }), kInvalid);
  EXPECT_EQ(code([](auto& o) { o.retry_period = milliseconds(1250); }), kInvalid);
  EXPECT_EQ(code([](auto& o) { o.retry_period = milliseconds(0); }), kInvalid);
  EXPECT_THAT(server_.methods(), IsEmpty());
}

TEST(LeaderIdentityTest, IsAHostNameThatALabelHolds) {
  EXPECT_EQ(kube::LeaderIdentity("node-1"), "node-1");
  EXPECT_EQ(kube::LeaderIdentity("Node.example.com"), "Node-example-com");
  EXPECT_EQ(kube::LeaderIdentity("node_"), "node-X");
  EXPECT_EQ(kube::LeaderIdentity("n\xc3\xa4"), "n--X");
  EXPECT_FALSE(kube::LeaderIdentity().empty());
}

}  // namespace leader_election_test
}  // namespace cbt::test
