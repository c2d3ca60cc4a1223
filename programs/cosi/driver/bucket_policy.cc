#include "programs/cosi/driver/bucket_policy.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cbt::cosi {
namespace {

constexpr char kPolicyVersion[] = "2012-10-17";

// Accounts have no "#".
bool BelongsTo(const kube::Object& statement, const std::string& account) {
  const absl::StatusOr<std::string> sid = statement.String({"Sid"});
  if (!sid.ok()) return false;
  return *sid == account || sid->starts_with(account + "#");
}

kube::Object StatementOf(const AccessRule& rule, const std::string& account,
                         const std::string& bucket, size_t number) {
  kube::Object statement;
  statement.SetString({"Sid"}, number == 1 ? account : absl::StrCat(account, "#", number));
  statement.SetString({"Effect"}, rule.allow ? "Allow" : "Deny");
  statement.SetStrings({"Principal", "AWS"}, {absl::StrCat("arn:aws:iam:::user/", account)});
  statement.SetStrings({"Action"}, rule.actions);
  std::vector<std::string> resources;
  for (const std::string& behind : rule.resources) {
    resources.push_back(absl::StrCat("arn:aws:s3:::", bucket, behind));
  }
  statement.SetStrings({"Resource"}, resources);
  if (rule.condition.has_value()) statement.SetChild({"Condition"}, *rule.condition);
  return statement;
}

}  // namespace

std::vector<kube::Object> StatementsFor(const AccessRules& rules, const std::string& account,
                                        const std::string& bucket) {
  std::vector<kube::Object> statements;
  for (const AccessRule& rule : rules) {
    statements.push_back(StatementOf(rule, account, bucket, statements.size() + 1));
  }
  const bool reads = std::any_of(rules.begin(), rules.end(), [](const AccessRule& rule) {
    return rule.allow && MayRead(rule);
  });
  if (!reads) {
    const AccessRule denial{.allow = false, .actions = {"s3:GetObject*"}, .resources = {"/*"}};
    statements.push_back(StatementOf(denial, account, bucket, statements.size() + 1));
  }
  return statements;
}

std::vector<kube::Object> DenialFor(const std::string& account, const std::string& bucket) {
  const AccessRule denial{.allow = false, .actions = {"s3:*"}, .resources = {"", "/*"}};
  return {StatementOf(denial, account, bucket, 1)};
}

absl::StatusOr<BucketPolicy> BucketPolicy::Parse(std::string_view text) {
  BucketPolicy policy;
  if (text.empty()) {
    policy.rest_.SetString({"Version"}, kPolicyVersion);
    return policy;
  }
  absl::StatusOr<kube::Object> parsed = kube::Object::ParseRequest(text);
  if (!parsed.ok()) {
    return absl::FailedPreconditionError("the bucket's policy is not JSON; remove it by hand");
  }
  absl::StatusOr<std::vector<kube::Object>> statements = parsed->Children({"Statement"});
  if (!statements.ok()) {
    absl::StatusOr<kube::Object> one = parsed->Child({"Statement"});
    if (!one.ok()) {
      return absl::FailedPreconditionError(
          "the bucket's policy has no statements; remove it by hand");
    }
    statements = std::vector<kube::Object>{*std::move(one)};
  }
  policy.statements_ = *std::move(statements);
  policy.rest_ = *std::move(parsed);
  policy.rest_.Remove({"Statement"});
  return policy;
}

std::vector<kube::Object> BucketPolicy::Of(const std::string& account) const {
  std::vector<kube::Object> found;
  std::copy_if(statements_.begin(), statements_.end(), std::back_inserter(found),
               [&](const kube::Object& each) { return BelongsTo(each, account); });
  return found;
}

void BucketPolicy::Set(const std::string& account, const std::vector<kube::Object>& statements) {
  std::erase_if(statements_, [&](const kube::Object& each) { return BelongsTo(each, account); });
  statements_.insert(statements_.end(), statements.begin(), statements.end());
}

std::string BucketPolicy::ToJson() const {
  kube::Object policy = rest_;
  policy.SetChildren({"Statement"}, statements_);
  return policy.ToJson();
}

}  // namespace cbt::cosi
