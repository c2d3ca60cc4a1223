// Untrusted bytes through what the COSI driver reads beside messages: policies of requests and of
// buckets, an object gateway's answers, the file of a static store, display names. The last byte
// chooses the decoder.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/support/check.h"
#include "programs/cosi/driver/access_rules.h"
#include "programs/cosi/driver/account_record.h"
#include "programs/cosi/driver/bucket_policy.h"
#include "programs/cosi/driver/rgw_answers.h"
#include "programs/cosi/driver/static_store.h"

namespace {

using namespace cbt::cosi;  // NOLINT(google-build-using-namespace)

// An account gets the resources of its bucket alone, under its own name.
void TryRules(std::string_view text) {
  const absl::StatusOr<AccessRules> rules = RulesOfText(text);
  if (!rules.ok()) {
    CBT_FUZZ_CHECK(absl::IsInvalidArgument(rules.status()));
    return;
  }
  CBT_FUZZ_CHECK(!rules->empty());
  for (const cbt::kube::Object& statement : StatementsFor(*rules, "account", "bucket")) {
    CBT_FUZZ_CHECK(*statement.Strings({"Principal", "AWS"}) ==
                   std::vector<std::string>{"arn:aws:iam:::user/account"});
    const std::vector<std::string> resources = *statement.Strings({"Resource"});
    for (const std::string& resource : resources) {
      CBT_FUZZ_CHECK(resource == "arn:aws:s3:::bucket" ||
                     resource.starts_with("arn:aws:s3:::bucket/"));
    }
    if (*statement.String({"Effect"}) != "Allow") continue;
    const std::vector<std::string> actions = *statement.Strings({"Action"});
    for (const std::string& action : actions) {
      CBT_FUZZ_CHECK(action != "*" && action != "s3:*" && action != "s3:PutBucketPolicy");
    }
  }
}

// Statements of others stay, whatever an account gets and loses.
void TryPolicy(std::string_view text) {
  absl::StatusOr<BucketPolicy> policy = BucketPolicy::Parse(text);
  if (!policy.ok()) return;
  policy->Set("account", {});
  const std::string others = policy->ToJson();
  const auto statements = StatementsFor(*RulesOfMode(AccessMode::kWriteOnly), "account", "bucket");
  policy->Set("account", statements);
  CBT_FUZZ_CHECK(policy->Of("account") == statements);
  absl::StatusOr<BucketPolicy> again = BucketPolicy::Parse(policy->ToJson());
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(again->Of("account") == statements);
  again->Set("account", {});
  CBT_FUZZ_CHECK(again->ToJson() == others);
}

void TryAnswers(std::string_view text) {
  if (const absl::StatusOr<RgwAccount> account = ParseRgwAccount(text); account.ok()) {
    for (const S3Keys& keys : account->keys) CBT_FUZZ_CHECK(!keys.secret_key.empty());
  }
  CBT_FUZZ_CHECK(ParseRgwErrorCode(text).size() <= 64);
  (void)ParseHasEntries(text).ok();
  const absl::StatusOr<Parameters> tags = ParseTagging(text);
  if (!tags.ok()) return;
  const absl::StatusOr<Parameters> again = ParseTagging(WriteTagging(*tags));
  // A line's end is written alike, whatever it was.
  CBT_FUZZ_CHECK(!again.ok() || again->size() <= tags->size());
}

void TryRecord(std::string_view text) {
  const auto record = AccountRecord::FromDisplayName(text, "driver");
  if (!record.has_value()) return;
  const std::string written = record->ToDisplayName("driver");
  const auto again = AccountRecord::FromDisplayName(written, "driver");
  CBT_FUZZ_CHECK(again.has_value());
  CBT_FUZZ_CHECK(again->buckets == record->buckets && again->former == record->former);
  CBT_FUZZ_CHECK(!AccountRecord::FromDisplayName(text, "drive").has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size - 1);
  switch (data[size - 1] % 5) {
    case 0:
      TryRules(text);
      break;
    case 1:
      TryPolicy(text);
      break;
    case 2:
      TryAnswers(text);
      break;
    case 3:
      (void)ParseStaticStore(text).ok();
      break;
    default:
      TryRecord(text);
  }
  return 0;
}
