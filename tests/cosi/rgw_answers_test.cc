// What an object gateway answers, and what the driver keeps in a display name.
#include "programs/cosi/driver/rgw_answers.h"

#include <gtest/gtest.h>

#include "programs/cosi/driver/account_record.h"
#include "programs/cosi/driver/names.h"
#include "programs/cosi/driver/static_store.h"
#include "tests/support/status.h"

namespace cbt::cosi {
namespace rgw_answers_test {

using test::ValueOf;

TEST(RgwAnswers, Accounts) {
  const RgwAccount account = ValueOf(ParseRgwAccount(
      R"({"user_id":"u","display_name":"d","suspended":1,"caps":[],"keys":[)"
      R"({"user":"u:sub","access_key":"A","secret_key":"S"},{"user":"u","access_key":"B","secret_key":"T"}]})"));
  EXPECT_EQ(account.id, "u");
  EXPECT_TRUE(account.suspended);
  EXPECT_FALSE(account.privileged);
  ASSERT_EQ(account.keys.size(), 1u);
  EXPECT_EQ(account.keys.front().access_key, "B");
  for (const char* const more : {R"("caps":[{}])", R"("system":"true")", R"("system":true)",
                                 R"("admin":"true")", R"("system":[])"}) {
    EXPECT_TRUE(ValueOf(ParseRgwAccount(R"({"user_id":"u",)" + std::string(more) + "}")).privileged)
        << more;
  }
  for (const char* const damaged :
       {"", "[]", "{}", R"({"user_id":"u","keys":7})", R"({"user_id":"u","keys":[{}]})"}) {
    EXPECT_TRUE(absl::IsUnavailable(ParseRgwAccount(damaged).status())) << damaged;
  }
}

TEST(RgwAnswers, ErrorsAndTags) {
  EXPECT_EQ(ParseRgwErrorCode("<Error><Code>NoSuchBucket</Code></Error>"), "NoSuchBucket");
  EXPECT_EQ(ParseRgwErrorCode(R"({"Code":"NoSuchUser"})"), "NoSuchUser");
  for (const char* const none :
       {"", "x", "{}", R"({"Code":7})", R"({"Code":"a b"})", R"({"Code":"0123456789abcdef"})"}) {
    EXPECT_EQ(ParseRgwErrorCode(none), "") << none;
  }
  const Parameters tags = {{"a", "<&>"}, {"b", ""}};
  EXPECT_EQ(ValueOf(ParseTagging(WriteTagging(tags))), tags);
  for (const char* const damaged : {"", "<a/>",
                                    "<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet>"
                                    "</Tagging>"}) {
    EXPECT_TRUE(absl::IsUnavailable(ParseTagging(damaged).status())) << damaged;
  }
}

TEST(AccountRecord, ComesBack) {
  const AccountRecord record{.buckets = {"one", "two"}, .former = {"three"}};
  const std::string text = record.ToDisplayName("driver");
  const auto read = AccountRecord::FromDisplayName(text, "driver");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->buckets, record.buckets);
  EXPECT_EQ(read->former, record.former);
  for (const char* const other :
       {"", "by hand", "COSI account of driver2 for one", "COSI account of driver forone"}) {
    EXPECT_FALSE(AccountRecord::FromDisplayName(other, "driver").has_value()) << other;
  }
}

// COSI-C32
TEST(Names, OfDriversBucketsAndAccounts) {
  for (const char* const name : {"a", "a.b-c", "CBT.example.com", "0"}) {
    EXPECT_TRUE(CheckCosiDriverName(name).ok()) << name;
  }
  for (const std::string& name : {std::string(), std::string("-a"), std::string("a."),
                                  std::string("a_b"), std::string(64, 'a')}) {
    EXPECT_FALSE(CheckCosiDriverName(name).ok()) << name;
  }
  EXPECT_TRUE(CheckBucketName(std::string(63, 'a')).ok());
  EXPECT_FALSE(CheckBucketName(std::string(64, 'a')).ok());
  EXPECT_FALSE(CheckBucketName("Upper").ok());
  EXPECT_TRUE(CheckAccountName(NewAccountName()).ok());
  EXPECT_FALSE(CheckAccountName("a#2").ok());
}

TEST(StaticStore, SaysWhereItIsWrong) {
  const std::string good = R"({"endpoint":"e","region":"r","buckets":["photos"],"accounts":[)";
  for (const auto& [account, where] :
       {std::pair("{}", "accounts[0]"),
        {R"({"name":"w","accessKeyID":"a","accessSecretKey":"s","access":[{"bucket":"x"}]})",
         "access[0].bucket"},
        {R"({"name":"w","accessKeyID":"a","accessSecretKey":"s","access":[{"bucket":"photos"}]})",
         "access[0]"}}) {
    const absl::Status status = ParseStaticStore(good + account + "]}").status();
    EXPECT_NE(status.message().find(where), absl::string_view::npos) << status;
  }
  EXPECT_TRUE(ParseStaticStore(good + "]}").ok());
}

}  // namespace rgw_answers_test
}  // namespace cbt::cosi
