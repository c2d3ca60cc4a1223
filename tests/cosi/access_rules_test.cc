// Policies of requests and of buckets.
#include "programs/cosi/driver/access_rules.h"

#include <gtest/gtest.h>

#include "programs/cosi/driver/bucket_policy.h"
#include "tests/support/status.h"

namespace cbt::cosi {
namespace access_rules_test {

using test::ValueOf;

TEST(AccessRules, ModesDiffer) {
  const AccessRules read = ValueOf(RulesOfMode(AccessMode::kReadOnly));
  const AccessRules write = ValueOf(RulesOfMode(AccessMode::kWriteOnly));
  const AccessRules both = ValueOf(RulesOfMode(AccessMode::kReadWrite));
  EXPECT_TRUE(MayRead(read.front()));
  EXPECT_FALSE(MayRead(write.front()));
  EXPECT_EQ(read.front().actions.size() + write.front().actions.size(),
            both.front().actions.size());
  for (const auto mode : {AccessMode::kUnknown, static_cast<AccessMode>(7)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(RulesOfMode(mode).status()));
  }
}

// COSI-S9
TEST(AccessRules, KeepWhatStandsBehindTheBucket) {
  const AccessRules rules = ValueOf(RulesOfText(
      R"({"Effect":"Allow","Action":"s3:GetObject","Resource":["arn:aws:s3:::a/b/*","arn:aws:s3:::c","*"]})"));
  EXPECT_EQ(rules.front().resources, (std::vector<std::string>{"/b/*", "", "", "/*"}));
  const auto statements = StatementsFor(rules, "ba-1", "bucket");
  ASSERT_EQ(statements.size(), 1u);
  EXPECT_EQ(ValueOf(statements.front().Strings({"Resource"})).front(), "arn:aws:s3:::bucket/b/*");
}

// "*" in an ARN matches slashes: what denies all buckets denies their objects.
TEST(AccessRules, DenyNoLessThanTheyAreAskedTo) {
  const auto resources = [](const std::string& effect, const std::string& name) {
    return ValueOf(RulesOfText(R"({"Effect":")" + effect +
                               R"(","Action":"s3:PutObject","Resource":"arn:aws:s3:::)" + name +
                               "\"}"))
        .front()
        .resources;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(resources("Deny", "*"), (List{"", "/*"}));
  EXPECT_EQ(resources("Allow", "*"), (List{"", "/*"}));
  EXPECT_EQ(resources("Deny", "team-*"), (List{"", "/*"}));
  EXPECT_EQ(resources("Deny", "*.key"), (List{"", "/*.key"}));
  EXPECT_EQ(resources("Deny", "*/private"), (List{"/private", "/*/private"}));
  EXPECT_EQ(resources("Deny", "a*b*c/d"), (List{"/d", "/*c/d"}));
  EXPECT_EQ(resources("Deny", "a/*"), (List{"/*"}));
  // To allow less than was asked for is no danger.
  EXPECT_EQ(resources("Allow", "team-*"), (List{""}));
  EXPECT_EQ(resources("Allow", "team-*/x"), (List{"/x"}));
  for (const char* const effect : {"Allow", "Deny"}) {
    const absl::Status refused =
        RulesOfText(R"({"Effect":")" + std::string(effect) +
                    R"(","Action":"s3:PutObject","Resource":"arn:aws:s3:::a?b"})")
            .status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  }
}

TEST(AccessRules, RefuseWhatIsTheDrivers) {
  for (const char* const action : {"*", "s3:*", "s3:Put*", "s3:*Policy", "S3:PUTBUCKETPOLICY",
                                   "s3:Delete?ucket", "s3:PutObjectAcl", "s3:*Acl", "ec2:Run"}) {
    const std::string text = R"({"Effect":"Allow","Action":")" + std::string(action) + "\"}";
    EXPECT_TRUE(absl::IsInvalidArgument(RulesOfText(text).status())) << action;
  }
  // To deny all is no more than was asked for.
  EXPECT_TRUE(RulesOfText(R"({"Effect":"Deny","Action":"s3:*"})").ok());
  EXPECT_TRUE(RulesOfText(R"({"Effect":"Allow","Action":"s3:Get*"})").ok());
}

// Who may write owns what it writes, and could read it.
TEST(BucketPolicy, DeniesReadingToThoseWhoOnlyWrite) {
  const auto write = StatementsFor(ValueOf(RulesOfMode(AccessMode::kWriteOnly)), "ba-1", "bucket");
  ASSERT_EQ(write.size(), 2u);
  EXPECT_EQ(ValueOf(write[1].String({"Effect"})), "Deny");
  EXPECT_EQ(ValueOf(write[1].String({"Sid"})), "ba-1#2");
  EXPECT_EQ(StatementsFor(ValueOf(RulesOfMode(AccessMode::kReadWrite)), "ba-1", "bucket").size(),
            1u);
}

TEST(BucketPolicy, LeavesOthersAlone) {
  const std::string others =
      R"({"Version":"2008-10-17","Id":"x","Statement":[{"Sid":"ba-11","Effect":"Deny"},{"Effect":"Allow"}]})";
  BucketPolicy policy = ValueOf(BucketPolicy::Parse(others));
  const auto statements = StatementsFor(ValueOf(RulesOfMode(AccessMode::kWriteOnly)), "ba-1", "b");
  policy.Set("ba-1", statements);
  EXPECT_EQ(policy.Of("ba-1"), statements);
  EXPECT_EQ(policy.Of("ba-11").size(), 1u);
  BucketPolicy again = ValueOf(BucketPolicy::Parse(policy.ToJson()));
  EXPECT_EQ(again.Of("ba-1"), statements);
  again.Set("ba-1", {});
  EXPECT_EQ(ValueOf(kube::Object::Parse(again.ToJson())), ValueOf(kube::Object::Parse(others)));
  EXPECT_FALSE(again.empty());
  for (const char* const damaged : {"nonsense", "[]", R"({"Statement":7})"}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(BucketPolicy::Parse(damaged).status())) << damaged;
  }
  EXPECT_TRUE(ValueOf(BucketPolicy::Parse("")).empty());
}

}  // namespace access_rules_test
}  // namespace cbt::cosi
