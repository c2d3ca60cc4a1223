#include "programs/cosi/conform/checker.h"

#include <algorithm>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "ops/operation_seconds.h"

namespace cbt::cosi {
namespace {

constexpr int kBusyTries = 20;
constexpr std::chrono::milliseconds kBusyWait{250};

// The proposal's policies are S3's.
std::string PolicyText(AccessMode mode) {
  std::string actions;
  if (mode != AccessMode::kWriteOnly) actions = "\"s3:GetObject\",\"s3:ListBucket\"";
  if (mode != AccessMode::kReadOnly) {
    absl::StrAppend(&actions, actions.empty() ? "" : ",", "\"s3:PutObject\",\"s3:DeleteObject\"");
  }
  return absl::StrCat("{\"Effect\":\"Allow\",\"Action\":[", actions,
                      "],\"Resource\":[\"arn:aws:s3:::bucket\",\"arn:aws:s3:::bucket/*\"]}");
}

// As long as the driver asks for a repetition.
template <typename Call>
auto Repeat(Call call) {
  for (int i = 1;; ++i) {
    auto result = call();
    const absl::Status& status = [&]() -> const absl::Status& {
      if constexpr (std::is_same_v<decltype(result), absl::Status>) {
        return result;
      } else {
        return result.status();
      }
    }();
    const bool busy = absl::IsAborted(status) || absl::IsUnavailable(status);
    if (!busy || i >= kBusyTries) return result;
    std::this_thread::sleep_for(kBusyWait);
  }
}

}  // namespace

std::string NewName(std::string_view prefix, size_t size) {
  constexpr char kDigits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string name = absl::StrCat("cbt-", AbslView(prefix), "-");
  while (name.size() < size) name.push_back(kDigits[random() % (sizeof(kDigits) - 1)]);
  return name;
}

Checker::Finding Checker::Expect(const absl::Status& got,
                                 std::initializer_list<absl::StatusCode> wanted) {
  if (std::find(wanted.begin(), wanted.end(), got.code()) != wanted.end()) return Kept();
  std::string names;
  for (const absl::StatusCode code : wanted) {
    absl::StrAppend(&names, names.empty() ? "" : " or ", AbslView(ops::GoCodeName(code)));
  }
  return Broken(absl::StrCat("expected ", names, ", got ", AbslView(ops::GoCodeName(got.code())),
                             got.message().empty() ? "" : ": ", got.message()));
}

void Checker::Check(const char* id, const char* rule, const std::function<Finding()>& test) {
  const Finding finding = test();
  rpc::RuleReport report{.id = id,
                         .method = std::string(RevisionName(peer_.revision())),
                         .rule = rule,
                         .result = rpc::RuleResult::kPass,
                         .evidence = finding.evidence};
  if (!finding.applies) {
    report.result = rpc::RuleResult::kNotApplicable;
  } else if (!finding.evidence.empty()) {
    report.result = rpc::RuleResult::kFail;
  }
  if (options_.on_report) options_.on_report(report);
  reports_.push_back(std::move(report));
}

void Checker::Run() {
  CheckInfo();
  CheckCreation();
  CheckRefusals();
  CheckGrants();
  CheckModes();
  CheckRevocation();
  CheckDeletion();
  CleanUp();
}

CreateRequest Checker::ToCreate(const std::string& name) const {
  CreateRequest request{.name = name, .parameters = options_.bucket_parameters};
  if (!Is(Revision::kV02)) request.protocols = {Protocol::kS3};
  return request;
}

GrantRequest Checker::ToGrant(const std::string& account, const std::string& bucket_id,
                              AccessMode mode) const {
  GrantRequest request{.account = account,
                       .buckets = {{.bucket_id = bucket_id, .mode = mode}},
                       .protocol = Protocol::kS3,
                       .authentication = Authentication::kKey,
                       .parameters = options_.access_parameters};
  if (Is(Revision::kProposal)) request.policy = PolicyText(mode);
  return request;
}

absl::StatusOr<std::string> Checker::NewBucket() {
  const std::string name = NewName("bucket");
  const absl::StatusOr<BucketAnswer> made = Repeat([&] { return peer_.Create(ToCreate(name)); });
  if (!made.ok()) {
    return absl::Status(made.status().code(),
                        absl::StrCat("a bucket to check with: ", made.status().message()));
  }
  buckets_.insert(made->bucket_id);
  return made->bucket_id;
}

absl::StatusOr<GrantAnswer> Checker::Grant(const GrantRequest& request) {
  absl::StatusOr<GrantAnswer> answer = Repeat([&] { return peer_.Grant(request); });
  if (answer.ok()) {
    for (const AccessedBucket& bucket : request.buckets) {
      grants_.emplace(answer->account_id, bucket.bucket_id);
    }
  }
  return answer;
}

absl::Status Checker::Revoke(const std::string& account_id, const std::string& bucket_id) {
  return Repeat([&] {
    return peer_.Revoke({.account_id = account_id,
                         .bucket_ids = {bucket_id},
                         .parameters = options_.access_parameters});
  });
}

absl::Status Checker::Delete(const std::string& bucket_id) {
  return Repeat([&] { return peer_.Delete(bucket_id, options_.bucket_parameters); });
}

absl::StatusOr<TriedKeys> Checker::Keys(const GrantAnswer& answer, const std::string& bucket_id,
                                        size_t number) const {
  if (!answer.keys.has_value()) return absl::NotFoundError("the answer has no keys for S3");
  if (number >= answer.buckets.size() || !answer.buckets[number].s3.has_value()) {
    return absl::NotFoundError("the answer has no endpoint");
  }
  return TriedKeys::Open(*answer.keys, *answer.buckets[number].s3, bucket_id, options_.ca_file);
}

void Checker::CleanUp() {
  for (const auto& [account_id, bucket_id] : grants_) {
    Revoke(account_id, bucket_id).IgnoreError();
  }
  for (const std::string& bucket_id : buckets_) Delete(bucket_id).IgnoreError();
}

}  // namespace cbt::cosi
