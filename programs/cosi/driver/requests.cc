#include "programs/cosi/driver/requests.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/cosi/driver/names.h"

namespace cbt::cosi {
namespace {

constexpr char kModeParameter[] = "mode";        // v0.2, whose messages have no modes
constexpr char kAccountParameter[] = "account";  // for accounts that were made by hand
constexpr size_t kMostBuckets = 128;             // what a BucketAccess can name

absl::Status Required(const char* field) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": required"));
}

absl::Status CheckProtocols(const std::vector<Protocol>& protocols) {
  for (const Protocol protocol : protocols) {
    if (protocol != Protocol::kS3) {
      return absl::InvalidArgumentError("protocol: this driver has S3 alone");
    }
  }
  return absl::OkStatus();
}

BucketAnswer AnswerFor(const BucketStore& store, const std::string& bucket_id) {
  return {.bucket_id = bucket_id, .s3 = store.info()};
}

absl::StatusOr<AccessMode> ModeOf(const std::string& name) {
  if (name == "ReadWrite") return AccessMode::kReadWrite;
  if (name == "ReadOnly") return AccessMode::kReadOnly;
  if (name == "WriteOnly") return AccessMode::kWriteOnly;
  return absl::InvalidArgumentError("parameter mode: expected ReadWrite, ReadOnly or WriteOnly");
}

// A parameter that is not understood may be one that restricts.
absl::Status CheckGrantParameters(const BucketStore& store, Revision revision,
                                  const Parameters& parameters) {
  for (const auto& [key, value] : parameters) {
    if (key == kModeParameter && revision == Revision::kV02) continue;
    if (key == kAccountParameter && store.has_fixed_accounts()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", key,
                     ": unknown; the driver knows mode for v0.2, and account "
                     "where accounts are made by hand"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BucketAccess>> AccessOf(Revision revision, const GrantRequest& request) {
  std::vector<BucketAccess> all;
  std::set<std::string> seen;
  for (const AccessedBucket& bucket : request.buckets) {
    if (bucket.bucket_id.empty()) return Required("bucket ID");
    if (!seen.insert(bucket.bucket_id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket ", bucket.bucket_id, ": it is named twice"));
    }
    AccessMode mode = bucket.mode;
    if (const auto found = request.parameters.find(kModeParameter);
        revision == Revision::kV02 && found != request.parameters.end()) {
      const absl::StatusOr<AccessMode> named = ModeOf(found->second);
      if (!named.ok()) return named.status();
      mode = *named;
    }
    absl::StatusOr<AccessRules> rules =
        request.policy.has_value() ? RulesOfText(*request.policy) : RulesOfMode(mode);
    if (!rules.ok()) return rules.status();
    all.push_back({.bucket_id = bucket.bucket_id, .rules = *std::move(rules)});
  }
  if (all.empty() || all.size() > kMostBuckets) {
    return absl::InvalidArgumentError("buckets: expected 1 to 128");
  }
  return all;
}

}  // namespace

absl::StatusOr<BucketAnswer> Create(BucketStore& store, Revision revision,
                                    const CreateRequest& request) {
  if (request.name.empty()) return Required("name");
  if (revision == Revision::kProposal && request.protocols.empty()) return Required("protocol");
  if (absl::Status valid = CheckProtocols(request.protocols); !valid.ok()) return valid;
  if (const S3Info info = store.info(); !request.region.empty() && request.region != info.region) {
    return absl::InvalidArgumentError(absl::StrCat("protocol.s3.region: ", request.region,
                                                   "; this driver's is ", info.region,
                                                   ", and so is that of a class without a region"));
  }
  if (absl::Status made = store.Create(request.name, request.parameters); !made.ok()) return made;
  return AnswerFor(store, request.name);
}

absl::StatusOr<BucketAnswer> Find(BucketStore& store, const FindRequest& request) {
  if (request.bucket_id.empty()) return Required("existing bucket ID");
  if (absl::Status valid = CheckProtocols(request.protocols); !valid.ok()) return valid;
  if (absl::Status found = store.Find(request.bucket_id); !found.ok()) return found;
  return AnswerFor(store, request.bucket_id);
}

absl::Status Delete(BucketStore& store, const DeleteRequest& request) {
  if (request.bucket_id.empty()) return Required("bucket ID");
  return store.Delete(request.bucket_id);
}

absl::StatusOr<GrantAnswer> Grant(BucketStore& store, Revision revision,
                                  const GrantRequest& request) {
  if (request.authentication != Authentication::kKey) {
    return absl::InvalidArgumentError("authentication type: this driver has Key alone");
  }
  if (absl::Status valid = CheckProtocols({request.protocol}); !valid.ok()) return valid;
  if (absl::Status valid = CheckGrantParameters(store, revision, request.parameters); !valid.ok()) {
    return valid;
  }
  const absl::StatusOr<std::vector<BucketAccess>> access = AccessOf(revision, request);
  if (!access.ok()) return access.status();
  std::string account = request.account;
  if (account.empty() && revision != Revision::kProposal) return Required("account name");
  if (const auto named = request.parameters.find(kAccountParameter);
      named != request.parameters.end()) {
    account = named->second;
  }
  if (account.empty()) account = NewAccountName();
  if (absl::Status valid = CheckAccountName(account); !valid.ok()) return valid;
  absl::StatusOr<S3Keys> keys = store.Grant(account, *access);
  if (!keys.ok()) return keys.status();
  GrantAnswer answer{.account_id = std::move(account), .keys = *std::move(keys)};
  for (const BucketAccess& each : *access) {
    answer.buckets.push_back(AnswerFor(store, each.bucket_id));
  }
  return answer;
}

absl::Status Revoke(BucketStore& store, const RevokeRequest& request) {
  if (request.account_id.empty()) return Required("account ID");
  if (request.bucket_ids.empty()) return Required("buckets");
  for (const std::string& bucket_id : request.bucket_ids) {
    if (bucket_id.empty()) return Required("bucket ID");
  }
  return store.Revoke(request.account_id, request.bucket_ids);
}

}  // namespace cbt::cosi
