#include "programs/cosi/driver/rgw_store.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "bucket/sign.h"
#include "programs/cosi/driver/account_record.h"
#include "programs/cosi/driver/bucket_policy.h"
#include "programs/cosi/driver/names.h"
#include "programs/cosi/driver/rgw_answers.h"
#include "programs/cosi/driver/turns.h"

namespace cbt::cosi {
namespace {

constexpr char kVersioning[] = "versioning";
constexpr char kVersioningBody[] =
    "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
    "<Status>Enabled</Status></VersioningConfiguration>";

// The same for the same parameters only.
std::string DigestOf(const Parameters& parameters) {
  std::string text;
  for (const auto& [key, value] : parameters) {
    absl::StrAppend(&text, key.size(), ":", key, value.size(), ":", value);
  }
  return bucket::Sha256Hex(text);
}

// Whether to keep versions.
absl::StatusOr<bool> ParametersOfCreate(const Parameters& parameters) {
  bool versioning = false;
  for (const auto& [key, value] : parameters) {
    if (key != kVersioning) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", key, ": unknown; the driver knows versioning (true, false)"));
    }
    if (value != "true" && value != "false") {
      return absl::InvalidArgumentError("parameter versioning: expected true or false");
    }
    versioning = value == "true";
  }
  return versioning;
}

// What has changed is looked at again: a proxy may answer 200 with a page of its own.
absl::Status Unchanged(const std::string& what) {
  return absl::UnavailableError(
      absl::StrCat(what, ": the object gateway said that it had changed, and it has not"));
}

class RgwStore final : public BucketStore {
 public:
  RgwStore(std::unique_ptr<RgwClient> client, RgwStoreOptions options)
      : client_(std::move(client)), options_(std::move(options)), turns_(options_.longest_turn) {}

  S3Info info() const override { return options_.info; }

  absl::Status Create(const std::string& name, const Parameters& parameters) override {
    if (absl::Status valid = CheckBucketName(name); !valid.ok()) return valid;
    const auto turn = turns_.Take("bucket " + name);
    if (!turn.ok()) return turn.status();
    absl::StatusOr<Look> look = LookAt(name);
    if (!look.ok()) return look.status();
    const std::string digest = DigestOf(parameters);
    switch (look->state) {
      case State::kTagged:
        if (look->tags[kDriverTag] != options_.driver_name) return NotOurs(name);
        if (look->tags[kParametersTag] == digest) return absl::OkStatus();
        return absl::AlreadyExistsError(
            absl::StrCat("bucket ", name, ": it was created with other parameters"));
      case State::kForeign:
        return NotOurs(name);
      case State::kUntagged: {
        // Of a creation that ended half way, unless somebody has used it.
        const absl::StatusOr<bool> used = HasEntries(name);
        if (!used.ok()) return used.status();
        if (*used) return NotOurs(name);
        break;
      }
      case State::kMissing:
        break;
    }
    const absl::StatusOr<bool> versioning = ParametersOfCreate(parameters);
    if (!versioning.ok()) return versioning.status();
    return Make(name, digest, *versioning);
  }

  absl::Status Find(const std::string& bucket_id) override {
    if (absl::Status valid = CheckBucketName(bucket_id); !valid.ok()) return valid;
    const absl::StatusOr<Look> look = LookAt(bucket_id);
    if (!look.ok()) return look.status();
    if (look->state == State::kMissing) return NoBucket(bucket_id);
    if (look->state == State::kForeign) {
      return absl::PermissionDeniedError(
          absl::StrCat("bucket ", bucket_id,
                       ": it belongs to another user; link it to the "
                       "driver's"));
    }
    return absl::OkStatus();
  }

  absl::Status Delete(const std::string& bucket_id) override {
    // No bucket has such a name.
    if (!CheckBucketName(bucket_id).ok()) return absl::OkStatus();
    const auto turn = turns_.Take("bucket " + bucket_id);
    if (!turn.ok()) return turn.status();
    absl::StatusOr<Look> look = LookAt(bucket_id);
    if (!look.ok()) return look.status();
    if (look->state == State::kMissing) return absl::OkStatus();
    if (look->state != State::kTagged || look->tags[kDriverTag] != options_.driver_name) {
      return absl::FailedPreconditionError(
          absl::StrCat("bucket ", bucket_id,
                       ": this driver did not create it, so it does not "
                       "delete it; remove it by hand"));
    }
    const absl::StatusOr<RgwAnswer> answer =
        client_->Send({.method = "DELETE",
                       .path = "/admin/bucket",
                       .query = {{"bucket", bucket_id}, {"purge-objects", "true"}},
                       .purges = true});
    if (!answer.ok()) return answer.status();
    if (!answer->ok() && !answer->Is("NoSuchBucket")) {
      return answer->ToStatus("delete bucket " + bucket_id);
    }
    look = LookAt(bucket_id);
    if (!look.ok()) return look.status();
    return look->state == State::kMissing ? absl::OkStatus() : Unchanged("bucket " + bucket_id);
  }

  absl::StatusOr<S3Keys> Grant(const std::string& account,
                               const std::vector<BucketAccess>& access) override {
    if (absl::Status valid = CheckAccountName(account); !valid.ok()) return valid;
    for (const BucketAccess& each : access) {
      if (!CheckBucketName(each.bucket_id).ok()) return NoBucket(each.bucket_id);
    }
    std::vector<Turns::Turn> turns;
    if (absl::Status taken = TakeTurns(account, BucketsOf(access), turns); !taken.ok()) {
      return taken;
    }
    // All is looked at before anything changes.
    std::vector<std::pair<std::string, std::string>> policies;
    for (const BucketAccess& each : access) {
      absl::StatusOr<std::string> policy = PolicyWith(account, each);
      if (!policy.ok()) return policy.status();
      policies.emplace_back(each.bucket_id, *std::move(policy));
    }
    absl::StatusOr<RgwAccount> user = Account(account, BucketsOf(access));
    if (!user.ok()) return user.status();
    for (const auto& [bucket_id, policy] : policies) {
      if (policy.empty()) continue;
      if (absl::Status put = PutPolicy(bucket_id, policy); !put.ok()) return put;
    }
    // cppcheck-suppress returnStdMoveLocal  // no local
    return std::move(user->keys.front());
  }

  absl::Status Revoke(const std::string& account,
                      const std::vector<std::string>& bucket_ids) override {
    if (!CheckAccountName(account).ok()) return absl::OkStatus();
    std::set<std::string> buckets;
    for (const std::string& bucket_id : bucket_ids) {
      if (CheckBucketName(bucket_id).ok()) buckets.insert(bucket_id);
    }
    std::vector<Turns::Turn> turns;
    if (absl::Status taken = TakeTurns(account, buckets, turns); !taken.ok()) return taken;
    const absl::StatusOr<std::optional<RgwAccount>> user = ReadAccount(account);
    if (!user.ok()) return user.status();
    std::optional<AccountRecord> record;
    if (user->has_value()) {
      record = AccountRecord::FromDisplayName((*user)->display_name, options_.driver_name);
    }
    bool remains = user->has_value() && !record.has_value();
    if (record.has_value()) {
      for (const std::string& bucket_id : buckets) {
        if (record->buckets.erase(bucket_id) > 0) record->former.insert(bucket_id);
      }
      remains = !record->buckets.empty();
    }
    for (const std::string& bucket_id : buckets) {
      const auto left = remains ? DenialFor(account, bucket_id) : std::vector<kube::Object>();
      if (absl::Status removed = ReplaceInPolicy(account, bucket_id, left); !removed.ok()) {
        return removed;
      }
    }
    if (!record.has_value()) return absl::OkStatus();
    if (remains) return Keep(account, *record);
    // The account's turn alone: other buckets follow.
    while (turns.size() > 1) turns.pop_back();
    return RemoveAccount(account, *record);
  }

 private:
  enum class State { kMissing, kUntagged, kTagged, kForeign };
  struct Look {
    State state = State::kMissing;
    Parameters tags = {};
  };

  static absl::Status NoBucket(const std::string& name) {
    return absl::NotFoundError(absl::StrCat("bucket ", name, ": it does not exist"));
  }
  static absl::Status NotOurs(const std::string& name) {
    return absl::AlreadyExistsError(
        absl::StrCat("bucket ", name, ": it exists, and this driver did not create it"));
  }
  static std::set<std::string> BucketsOf(const std::vector<BucketAccess>& access) {
    std::set<std::string> buckets;
    for (const BucketAccess& each : access) buckets.insert(each.bucket_id);
    return buckets;
  }

  absl::Status TakeTurns(const std::string& account, const std::set<std::string>& buckets,
                         std::vector<Turns::Turn>& turns) {
    std::vector<std::string> keys = {"account " + account};
    for (const std::string& bucket_id : buckets) keys.push_back("bucket " + bucket_id);
    for (const std::string& key : keys) {
      absl::StatusOr<Turns::Turn> turn = turns_.Take(key);
      if (!turn.ok()) return turn.status();
      turns.push_back(*std::move(turn));
    }
    return absl::OkStatus();
  }

  // --- Buckets.

  absl::StatusOr<Look> LookAt(const std::string& name) {
    const absl::StatusOr<RgwAnswer> answer =
        client_->Send({.method = "GET", .path = "/" + name, .query = {{"tagging", ""}}});
    if (!answer.ok()) return answer.status();
    if (answer->ok()) {
      absl::StatusOr<Parameters> tags = ParseTagging(answer->body);
      if (!tags.ok()) return tags.status();
      const bool tagged = tags->contains(kDriverTag);
      return Look{tagged ? State::kTagged : State::kUntagged, *std::move(tags)};
    }
    if (answer->Is("NoSuchBucket")) return Look{State::kMissing};
    if (answer->Is("NoSuchTagSet") || answer->Is("NoSuchTagSetError")) {
      return Look{State::kUntagged};
    }
    if (answer->Is("AccessDenied")) return Look{State::kForeign};
    return answer->ToStatus("look at bucket " + name);
  }

  absl::StatusOr<bool> HasEntries(const std::string& name) {
    const absl::StatusOr<RgwAnswer> answer = client_->Send(
        {.method = "GET", .path = "/" + name, .query = {{"versions", ""}, {"max-keys", "1"}}});
    if (!answer.ok()) return answer.status();
    if (!answer->ok()) return answer->ToStatus("list bucket " + name);
    return ParseHasEntries(answer->body);
  }

  // The tags come last: a bucket with them is whole.
  absl::Status Make(const std::string& name, const std::string& digest, bool versioning) {
    absl::StatusOr<RgwAnswer> answer = client_->Send({.method = "PUT", .path = "/" + name});
    if (!answer.ok()) return answer.status();
    if (answer->Is("BucketAlreadyExists")) return NotOurs(name);
    if (!answer->ok() && !answer->Is("BucketAlreadyOwnedByYou")) {
      return answer->ToStatus("create bucket " + name);
    }
    if (versioning) {
      answer = client_->Send({.method = "PUT",
                              .path = "/" + name,
                              .query = {{"versioning", ""}},
                              .body = kVersioningBody});
      if (!answer.ok()) return answer.status();
      if (!answer->ok()) return answer->ToStatus("keep versions in bucket " + name);
    }
    answer = client_->Send(
        {.method = "PUT",
         .path = "/" + name,
         .query = {{"tagging", ""}},
         .body = WriteTagging({{kDriverTag, options_.driver_name}, {kParametersTag, digest}})});
    if (!answer.ok()) return answer.status();
    if (!answer->ok()) return answer->ToStatus("tag bucket " + name);
    const absl::StatusOr<Look> look = LookAt(name);
    if (!look.ok()) return look.status();
    return look->state == State::kTagged ? absl::OkStatus() : Unchanged("bucket " + name);
  }

  // --- Policies. The caller has the bucket's turn.

  // The text; empty without one. Errors: NOT_FOUND without the bucket.
  absl::StatusOr<std::string> ReadPolicy(const std::string& bucket_id) {
    absl::StatusOr<RgwAnswer> answer =
        client_->Send({.method = "GET", .path = "/" + bucket_id, .query = {{"policy", ""}}});
    if (!answer.ok()) return answer.status();
    if (answer->ok()) return answer->body;
    if (answer->Is("NoSuchBucketPolicy")) return std::string();
    if (answer->Is("NoSuchBucket")) return NoBucket(bucket_id);
    return answer->ToStatus("read the policy of bucket " + bucket_id);
  }

  // The bucket's policy with this access; empty if it has it already.
  absl::StatusOr<std::string> PolicyWith(const std::string& account, const BucketAccess& access) {
    const absl::StatusOr<std::string> text = ReadPolicy(access.bucket_id);
    if (!text.ok()) return text.status();
    absl::StatusOr<BucketPolicy> policy = BucketPolicy::Parse(*text);
    if (!policy.ok()) return policy.status();
    const std::vector<kube::Object> wanted = StatementsFor(access.rules, account, access.bucket_id);
    const std::vector<kube::Object> present = policy->Of(account);
    if (present == wanted) return std::string();
    if (!present.empty() && present != DenialFor(account, access.bucket_id)) {
      return absl::AlreadyExistsError(absl::StrCat("account ", account,
                                                   ": it has other access to bucket ",
                                                   access.bucket_id, "; revoke that first"));
    }
    policy->Set(account, wanted);
    std::string json = policy->ToJson();
    if (json.size() > kMaxPolicyBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "bucket ", access.bucket_id, ": its policy would have ", json.size(), " bytes, S3 takes ",
          kMaxPolicyBytes, "; revoke access that is no longer used, or use another bucket"));
    }
    return json;
  }

  absl::Status PutPolicy(const std::string& bucket_id, const std::string& json) {
    const absl::StatusOr<RgwAnswer> answer = client_->Send(
        {.method = "PUT", .path = "/" + bucket_id, .query = {{"policy", ""}}, .body = json});
    if (!answer.ok()) return answer.status();
    if (answer->Is("NoSuchBucket")) return NoBucket(bucket_id);
    if (answer->Is("MalformedPolicy") || answer->Is("InvalidArgument")) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket ", bucket_id,
                       ": the object gateway does not take this access "
                       "policy; check its actions and conditions"));
    }
    if (!answer->ok()) return answer->ToStatus("write the policy of bucket " + bucket_id);
    // A second writer would have replaced it.
    const absl::StatusOr<std::string> now = ReadPolicy(bucket_id);
    if (!now.ok()) return now.status();
    const absl::StatusOr<BucketPolicy> stored = BucketPolicy::Parse(*now);
    const absl::StatusOr<BucketPolicy> sent = BucketPolicy::Parse(json);
    if (stored.ok() && sent.ok() && stored->ToJson() == sent->ToJson()) return absl::OkStatus();
    return absl::AbortedError(
        absl::StrCat("bucket ", bucket_id,
                     ": another program writes its policy; run one driver for each "
                     "object gateway"));
  }

  // Leaves these statements of the account, if it has any now. OK if the bucket is gone.
  absl::Status ReplaceInPolicy(const std::string& account, const std::string& bucket_id,
                               const std::vector<kube::Object>& statements) {
    const absl::StatusOr<std::string> text = ReadPolicy(bucket_id);
    if (absl::IsNotFound(text.status())) return absl::OkStatus();
    if (!text.ok()) return text.status();
    absl::StatusOr<BucketPolicy> policy = BucketPolicy::Parse(*text);
    if (!policy.ok()) return policy.status();
    const std::vector<kube::Object> present = policy->Of(account);
    if (present.empty() || present == statements) return absl::OkStatus();
    policy->Set(account, statements);
    if (!policy->empty()) {
      absl::Status put = PutPolicy(bucket_id, policy->ToJson());
      return absl::IsNotFound(put) ? absl::OkStatus() : put;
    }
    const absl::StatusOr<RgwAnswer> answer =
        client_->Send({.method = "DELETE", .path = "/" + bucket_id, .query = {{"policy", ""}}});
    if (!answer.ok()) return answer.status();
    if (!answer->ok() && !answer->Is("NoSuchBucketPolicy") && !answer->Is("NoSuchBucket")) {
      return answer->ToStatus("remove the policy of bucket " + bucket_id);
    }
    const absl::StatusOr<std::string> now = ReadPolicy(bucket_id);
    if (absl::IsNotFound(now.status())) return absl::OkStatus();
    if (!now.ok()) return now.status();
    return now->empty() ? absl::OkStatus() : Unchanged("the policy of bucket " + bucket_id);
  }

  // --- Accounts. The caller has the account's turn.

  // Empty: it does not exist.
  absl::StatusOr<std::optional<RgwAccount>> ReadAccount(const std::string& account) {
    const absl::StatusOr<RgwAnswer> answer = client_->Send(
        {.method = "GET", .path = "/admin/user", .query = {{"format", "json"}, {"uid", account}}});
    if (!answer.ok()) return answer.status();
    if (answer->Is("NoSuchUser")) return std::optional<RgwAccount>();
    if (!answer->ok()) return answer->ToStatus("look at account " + account);
    absl::StatusOr<RgwAccount> parsed = ParseRgwAccount(answer->body);
    if (!parsed.ok()) return parsed.status();
    if (parsed->id != account) {
      return absl::UnavailableError(
          absl::StrCat("account ", account, ": the object gateway answers with another one"));
    }
    return std::optional<RgwAccount>(*std::move(parsed));
  }

  absl::Status Change(const char* method, const std::string& account,
                      std::vector<bucket::NameAndValue> query, std::string_view what) {
    query.emplace_back("uid", account);
    query.emplace_back("format", "json");
    const absl::StatusOr<RgwAnswer> answer =
        client_->Send({.method = method, .path = "/admin/user", .query = std::move(query)});
    if (!answer.ok()) return answer.status();
    // Of an attempt whose answer was lost.
    if (answer->ok() || answer->Is("UserAlreadyExists") || answer->Is("KeyExists")) {
      return absl::OkStatus();
    }
    return answer->ToStatus(absl::StrCat(AbslView(what), " account ", account));
  }

  absl::Status Keep(const std::string& account, const AccountRecord& record) {
    const std::string name = record.ToDisplayName(options_.driver_name);
    if (absl::Status done = Change("POST", account, {{"display-name", name}}, "change");
        !done.ok()) {
      return done;
    }
    const absl::StatusOr<std::optional<RgwAccount>> now = ReadAccount(account);
    if (!now.ok()) return now.status();
    const bool kept = now->has_value() && (*now)->display_name == name;
    return kept ? absl::OkStatus() : Unchanged("account " + account);
  }

  // The account with a key, recorded for these buckets. It is made if it does not
  // exist.
  absl::StatusOr<RgwAccount> Account(const std::string& account,
                                     const std::set<std::string>& buckets) {
    absl::StatusOr<std::optional<RgwAccount>> user = ReadAccount(account);
    if (!user.ok()) return user.status();
    if (!user->has_value()) {
      const AccountRecord record{buckets};
      // Negative: it can't create buckets of its own.
      absl::Status made = Change("PUT", account,
                                 {{"display-name", record.ToDisplayName(options_.driver_name)},
                                  {"generate-key", "true"},
                                  {"key-type", "s3"},
                                  {"max-buckets", "-1"}},
                                 "create");
      if (!made.ok()) return made;
    } else {
      if (absl::Status usable = CheckUsable(**user); !usable.ok()) return usable;
      auto record = AccountRecord::FromDisplayName((*user)->display_name, options_.driver_name);
      if (record.has_value()) {
        const size_t before = record->buckets.size();
        record->buckets.insert(buckets.begin(), buckets.end());
        for (const std::string& bucket_id : buckets) record->former.erase(bucket_id);
        if (record->buckets.size() != before) {
          if (absl::Status kept = Keep(account, *record); !kept.ok()) return kept;
        }
      }
      if ((*user)->keys.empty()) {
        absl::Status key =
            Change("PUT", account, {{"key", ""}, {"key-type", "s3"}, {"generate-key", "true"}},
                   "make a key of");
        if (!key.ok()) return key;
      } else {
        return **std::move(user);
      }
    }
    user = ReadAccount(account);
    if (!user.ok()) return user.status();
    if (!user->has_value() || (*user)->keys.empty()) {
      return absl::UnavailableError(
          absl::StrCat("account ", account, ": the object gateway made it without a key"));
    }
    return **std::move(user);
  }

  absl::Status CheckUsable(const RgwAccount& user) const {
    const bool own = std::any_of(user.keys.begin(), user.keys.end(), [&](const S3Keys& keys) {
      return keys.access_key == client_->access_key();
    });
    if (own || user.privileged) {
      return absl::PermissionDeniedError(
          absl::StrCat("account ", user.id,
                       ": it administers the object gateway, so its keys are "
                       "not handed out"));
    }
    if (user.suspended) {
      return absl::FailedPreconditionError(
          absl::StrCat("account ", user.id, ": it is suspended; enable it"));
    }
    return absl::OkStatus();
  }

  // With what is left of it in policies, which name it no longer then.
  absl::Status RemoveAccount(const std::string& account, const AccountRecord& record) {
    const absl::StatusOr<RgwAnswer> answer =
        client_->Send({.method = "DELETE",
                       .path = "/admin/user",
                       .query = {{"format", "json"}, {"uid", account}}});
    if (!answer.ok()) return answer.status();
    if (!answer->ok() && !answer->Is("NoSuchUser")) {
      return answer->ToStatus("remove account " + account);
    }
    const absl::StatusOr<std::optional<RgwAccount>> left = ReadAccount(account);
    if (!left.ok()) return left.status();
    if (left->has_value()) return Unchanged("account " + account);
    for (const std::string& bucket_id : record.former) {
      const absl::StatusOr<Turns::Turn> turn = turns_.Take("bucket " + bucket_id);
      if (!turn.ok()) return turn.status();
      if (absl::Status removed = ReplaceInPolicy(account, bucket_id, {}); !removed.ok()) {
        return removed;
      }
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<RgwClient> client_;
  const RgwStoreOptions options_;
  Turns turns_;
};

}  // namespace

std::unique_ptr<BucketStore> MakeRgwStore(std::unique_ptr<RgwClient> client,
                                          RgwStoreOptions options) {
  return std::make_unique<RgwStore>(std::move(client), std::move(options));
}

}  // namespace cbt::cosi
