// What the four access hooks may answer, and what the client learns of it: never more than it may
// know, and never the answer to another question.
#include "rpc/access/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/server/services.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace admission_test {

using absl::StatusCode;
using testing::HasSubstr;

// Text that must not leak.
absl::Status Canary(int code) { return {static_cast<StatusCode>(code), "canary"}; }
constexpr int kLastCode = static_cast<int>(StatusCode::kUnauthenticated);

// All four hooks in one; each returns what a test sets, otherwise it admits the request.
class Four final : public rpc::Authenticator,
                   public rpc::Authorizer,
                   public rpc::SnapshotResolver,
                   public rpc::SecretProvider,
                   public rpc::SessionStore {
 public:
  void Authenticate(const Secret&, rpc::Done<rpc::Principal> done) override {
    if (!authentication.ok()) return done(authentication);
    done(rpc::Principal{.name = "somebody"});
  }
  void Authorize(const rpc::Principal&, const std::string&, rpc::DoneStatus done) override {
    done(authorization);
  }
  void Find(const Secret&, rpc::Done<rpc::Session> done) override {
    if (!authentication.ok()) return done(authentication);
    done(rpc::Session{.name_space = "ns", .snapshots = {"a", "b"}});
  }
  void Resolve(const rpc::SnapshotQuery& query, rpc::Done<rpc::ResolvedSnapshots> done) override {
    ++resolved;
    resolve(query, done);
  }
  void GetSecrets(const std::string&, const rpc::ResolvedSnapshots& snapshots,
                  rpc::Done<Secrets> done) override {
    ++asked_for_secrets;
    details = snapshots.details;
    get_secrets(done);
  }

  rpc::AccessControl Access() {
    return {.authenticator = this, .authorizer = this, .resolver = this, .secrets = this};
  }

  absl::Status authentication;
  absl::Status authorization;
  std::function<void(const rpc::SnapshotQuery&, const rpc::Done<rpc::ResolvedSnapshots>&)> resolve =
      [](const rpc::SnapshotQuery& query, const rpc::Done<rpc::ResolvedSnapshots>& done) {
        done(rpc::ResolvedSnapshots{.base_handle = query.base, .target_handle = query.target});
      };
  std::function<void(const rpc::Done<Secrets>&)> get_secrets = [](const rpc::Done<Secrets>& done) {
    done(Secrets());
  };
  int resolved = 0;
  int asked_for_secrets = 0;
  std::shared_ptr<const rpc::ResolutionDetails> details;
};

// Asks for b, against a if `delta`; every hook answers during the call.
absl::StatusOr<rpc::AdmittedRequest> Admit(rpc::Admission& admission, bool delta) {
  rpc::MetadataRequest request;
  request.token = Secret("token");
  request.name_space = "ns";
  request.target_snapshot_id = "b";
  if (delta) request.base_snapshot_id = "a";
  int answers = 0;
  absl::StatusOr<rpc::AdmittedRequest> answer = absl::UnknownError("no answer");
  admission.Admit(std::move(request), [&](absl::StatusOr<rpc::AdmittedRequest> given) {
    ++answers;
    answer = std::move(given);
  });
  EXPECT_EQ(answers, 1);
  return answer;
}

absl::Status StatusOf(Four& four, bool delta = true) {
  const auto admission = rpc::MakeAccessAdmission(four.Access(), true);
  return Admit(*admission, delta).status();
}

absl::Status SessionStatusOf(Four& four) {
  const auto admission = rpc::MakeSessionAdmission(four, four.Access());
  return Admit(*admission, true).status();
}

TEST(Admission, LetsOnWithHandlesAndSecretsOfTheStorage) {
  Four four;
  four.resolve = [](const rpc::SnapshotQuery& query,
                    const rpc::Done<rpc::ResolvedSnapshots>& done) {
    EXPECT_EQ(query.name_space, "ns");
    done(rpc::ResolvedSnapshots{.base_handle = "vol/" + *query.base,
                                .target_handle = "vol/" + query.target});
  };
  four.get_secrets = [](const rpc::Done<Secrets>& done) {
    Secrets secrets;
    secrets.Set("key", "value");
    done(std::move(secrets));
  };
  const auto by_token = rpc::MakeAccessAdmission(four.Access(), true);
  const auto by_session = rpc::MakeSessionAdmission(four, four.Access());
  for (rpc::Admission* const admission : {by_token.get(), by_session.get()}) {
    const auto admitted = Admit(*admission, true);
    ASSERT_OK(admitted);
    EXPECT_EQ(admitted->base_snapshot_id, "vol/a");
    EXPECT_EQ(admitted->target_snapshot_id, "vol/b");
    EXPECT_EQ(admitted->secrets.Get("key"), "value");
  }
}

// Whatever the reason, an unprivileged client only gets one of three sentences.
TEST(Admission, ReasonsOfARefusalStayInside) {
  for (int code = 1; code <= kLastCode; ++code) {
    SCOPED_TRACE(absl::StatusCodeToString(static_cast<StatusCode>(code)));
    absl::Status expected =
        absl::UnauthenticatedError("the token is invalid or does not grant access");
    switch (static_cast<StatusCode>(code)) {
      case StatusCode::kUnavailable:
      case StatusCode::kDeadlineExceeded:
      case StatusCode::kResourceExhausted:
        // A retry may succeed.
        expected = absl::UnavailableError("access can't be checked now");
        break;
      case StatusCode::kInternal:
      case StatusCode::kUnknown:
        expected = absl::InternalError("access can't be checked");
        break;
      default:
        break;
    }
    Four four;
    four.authentication = Canary(code);
    EXPECT_EQ(StatusOf(four), expected);
    EXPECT_EQ(SessionStatusOf(four), expected);
    four.authentication = absl::OkStatus();
    four.authorization = Canary(code);
    EXPECT_EQ(StatusOf(four), expected);
    // And the snapshots were not looked up.
    EXPECT_EQ(four.resolved, 0);
    EXPECT_EQ(four.asked_for_secrets, 0);
  }
}

// A caller who is known and not permitted is no secret where the service says so: the code alone.
TEST(Admission, DeniedCallersCanBeReportedAsSuch) {
  for (int code = 1; code <= kLastCode; ++code) {
    Four four;
    rpc::AccessControl access = four.Access();
    access.reports_denied = true;
    const auto status = [&] {
      const auto admission = rpc::MakeAccessAdmission(access, true);
      return Admit(*admission, true).status();
    };
    four.authorization = Canary(code);
    const absl::Status reported = status();
    const bool denied = static_cast<StatusCode>(code) == StatusCode::kPermissionDenied;
    EXPECT_EQ(absl::IsPermissionDenied(reported), denied) << reported;
    if (denied) {
      EXPECT_EQ(reported.message(), "the caller may not read snapshots of the namespace");
    } else {
      EXPECT_EQ(reported, StatusOf(four));
    }
    EXPECT_EQ(four.resolved, 0);
    // An authenticator does not know what is permitted.
    four.authorization = absl::OkStatus();
    four.authentication = Canary(code);
    EXPECT_FALSE(absl::IsPermissionDenied(status()));
  }
}

TEST(Admission, TheProviderOfSecretsGetsWhatTheResolverLearned) {
  struct Details final : rpc::ResolutionDetails {};
  const auto details = std::make_shared<const Details>();
  Four four;
  four.resolve = [&](const rpc::SnapshotQuery& query,
                     const rpc::Done<rpc::ResolvedSnapshots>& done) {
    done(rpc::ResolvedSnapshots{
        .base_handle = query.base, .target_handle = query.target, .details = details});
  };
  EXPECT_TRUE(StatusOf(four).ok());
  EXPECT_EQ(four.details, details);
}

TEST(Admission, OfResolversOnlyErrorsThatAreMeantForClientsPass) {
  for (int code = 1; code <= kLastCode; ++code) {
    SCOPED_TRACE(absl::StatusCodeToString(static_cast<StatusCode>(code)));
    Four four;
    four.resolve = [code](const rpc::SnapshotQuery&,
                          const rpc::Done<rpc::ResolvedSnapshots>& done) { done(Canary(code)); };
    absl::Status expected = absl::InternalError("the snapshots can't be looked up");
    switch (static_cast<StatusCode>(code)) {
      case StatusCode::kNotFound:
      case StatusCode::kInvalidArgument:
      case StatusCode::kUnavailable:
      case StatusCode::kFailedPrecondition:
        expected = Canary(code);
        break;
      default:
        break;
    }
    EXPECT_EQ(StatusOf(four), expected);
    EXPECT_EQ(SessionStatusOf(four), expected);
    EXPECT_EQ(four.resolved, 2);
    EXPECT_EQ(four.asked_for_secrets, 0);
  }
}

// A delta that lost its base would be answered with the allocation, or the reverse, which may
// under-report.
TEST(Admission, AResolverThatAnswersAnotherQuestionIsAnError) {
  const rpc::ResolvedSnapshots nothing;
  const rpc::ResolvedSnapshots no_target = {.base_handle = "a", .target_handle = ""};
  const rpc::ResolvedSnapshots no_base = {.base_handle = std::nullopt, .target_handle = "b"};
  const rpc::ResolvedSnapshots both = {.base_handle = "a", .target_handle = "b"};
  const auto status = [](const rpc::ResolvedSnapshots& answer, bool delta) {
    Four four;
    four.resolve = [&answer](const rpc::SnapshotQuery&,
                             const rpc::Done<rpc::ResolvedSnapshots>& done) { done(answer); };
    const absl::Status result = StatusOf(four, delta);
    EXPECT_EQ(four.asked_for_secrets, result.ok() ? 1 : 0);
    return result;
  };
  const absl::Status error = absl::InternalError("the snapshots can't be looked up");
  EXPECT_EQ(status(nothing, true), error);
  EXPECT_EQ(status(nothing, false), error);
  EXPECT_EQ(status(no_target, true), error);
  EXPECT_EQ(status(no_base, true), error);
  EXPECT_EQ(status(both, false), error);
  EXPECT_OK(status(both, true));
  EXPECT_OK(status(no_base, false));
}

TEST(Admission, ASessionWithoutAResolverNamesHandles) {
  Four four;
  const auto admission = rpc::MakeSessionAdmission(four, {});
  auto admitted = Admit(*admission, true);
  ASSERT_OK(admitted);
  EXPECT_EQ(admitted->base_snapshot_id, "a");
  EXPECT_EQ(admitted->target_snapshot_id, "b");
  EXPECT_EQ(admitted->secrets.size(), 0u);
  admitted = Admit(*admission, false);
  ASSERT_OK(admitted);
  EXPECT_FALSE(admitted->base_snapshot_id.has_value());
  EXPECT_EQ(four.resolved, 0);
}

TEST(Admission, WithoutItsSecretsARequestDoesNotGoOn) {
  for (int code = 1; code <= kLastCode; ++code) {
    Four four;
    four.get_secrets = [code](const rpc::Done<Secrets>& done) { done(Canary(code)); };
    // What somebody has to mend is said, and no other attempt suggested.
    if (static_cast<StatusCode>(code) == StatusCode::kFailedPrecondition) {
      EXPECT_EQ(StatusOf(four), Canary(code));
      continue;
    }
    EXPECT_EQ(StatusOf(four), static_cast<StatusCode>(code) == StatusCode::kUnavailable
                                  ? absl::UnavailableError("the secrets can't be read now")
                                  : absl::InternalError("the secrets can't be read"));
  }
}

TEST(Admission, ForeignCodeThatDropsThrowsOrRepeatsItselfIsAnsweredOnce) {
  Four four;
  four.resolve = [](const rpc::SnapshotQuery&, const rpc::Done<rpc::ResolvedSnapshots>&) {};
  EXPECT_EQ(StatusOf(four).code(), StatusCode::kInternal);
  four.resolve = [](const rpc::SnapshotQuery&, const rpc::Done<rpc::ResolvedSnapshots>&) {
    throw std::runtime_error("canary");
  };
  EXPECT_EQ(StatusOf(four), absl::InternalError("the snapshots can't be looked up"));
  four.resolve = [](const rpc::SnapshotQuery&, const rpc::Done<rpc::ResolvedSnapshots>& done) {
    done(absl::NotFoundError("first"));
    done(rpc::ResolvedSnapshots{.base_handle = "a", .target_handle = "b"});
  };
  EXPECT_EQ(StatusOf(four), absl::NotFoundError("first"));
  four = Four();
  four.get_secrets = [](const rpc::Done<Secrets>&) { throw std::runtime_error("canary"); };
  EXPECT_EQ(StatusOf(four), absl::InternalError("the secrets can't be read"));
  four.get_secrets = [](const rpc::Done<Secrets>& done) {
    done(Secrets());
    done(absl::UnavailableError("canary"));
  };
  EXPECT_OK(StatusOf(four));
}

// A service without access hooks would admit everyone.
TEST(Admission, AContractIsNotServedWithoutThoseItAsks) {
  Four four;
  const auto check = [](std::vector<rpc::Api> apis, const rpc::AccessControl& access,
                        rpc::SessionStore* sessions) {
    return rpc::CheckServiceOptions(
        {.apis = std::move(apis), .access = access, .sessions = sessions});
  };
  for (int missing = 0; missing < 3; ++missing) {
    rpc::AccessControl access = four.Access();
    access.secrets = nullptr;
    EXPECT_OK(check({rpc::Api::kKubernetes}, access, nullptr));
    if (missing == 0) access.authenticator = nullptr;
    if (missing == 1) access.authorizer = nullptr;
    if (missing == 2) access.resolver = nullptr;
    const absl::Status status = check({rpc::Api::kCsi, rpc::Api::kKubernetes}, access, nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << missing;
    EXPECT_THAT(status.ToString(), HasSubstr("kubernetes needs an authenticator"));
  }
  EXPECT_THAT(check({rpc::Api::kSession}, four.Access(), nullptr).ToString(),
              HasSubstr("session needs a session store"));
  EXPECT_OK(check({rpc::Api::kSession}, {}, &four));
  EXPECT_EQ(check({}, four.Access(), &four).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(check({rpc::Api::kCsi, rpc::Api::kCsi}, {}, nullptr).ToString(),
              HasSubstr("csi is listed twice"));
}

}  // namespace admission_test
}  // namespace cbt::test
