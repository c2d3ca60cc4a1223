#include "programs/cosi/driver/static_store.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/watched_file.h"
#include "cbt/kube/object.h"
#include "programs/cosi/driver/names.h"

namespace cbt::cosi {
namespace {

absl::Status Wrong(const std::string& where, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", absl::string_view(what.data(), what.size())));
}

absl::StatusOr<AccessRules> StaticRules(const kube::Object& access, const std::string& where) {
  const absl::StatusOr<std::optional<std::string>> mode = access.OptionalString({"mode"});
  const absl::StatusOr<std::optional<std::string>> policy = access.OptionalString({"policy"});
  if (!mode.ok() || !policy.ok() || mode->has_value() == policy->has_value()) {
    return Wrong(where, "expected mode or policy, as text");
  }
  if (policy->has_value()) return RulesOfText(**policy);
  for (const auto& [name, value] : {std::pair("ReadWrite", AccessMode::kReadWrite),
                                    {"ReadOnly", AccessMode::kReadOnly},
                                    {"WriteOnly", AccessMode::kWriteOnly}}) {
    if (**mode == name) return RulesOfMode(value);
  }
  return Wrong(where, "mode: expected ReadWrite, ReadOnly or WriteOnly");
}

absl::Status TakeAccount(const kube::Object& object, const std::string& where,
                         StaticStoreFile& file) {
  absl::StatusOr<std::string> name = object.String({"name"});
  absl::StatusOr<std::string> access_key = object.String({"accessKeyID"});
  absl::StatusOr<Secret> secret_key = object.SecretString({"accessSecretKey"});
  if (!name.ok() || !access_key.ok() || !secret_key.ok() || secret_key->empty()) {
    return Wrong(where, "expected name, accessKeyID and accessSecretKey");
  }
  if (!CheckAccountName(*name).ok()) return Wrong(where + ".name", "no name of an account");
  StaticAccount account;
  account.keys = {.access_key = *std::move(access_key), .secret_key = *std::move(secret_key)};
  const absl::StatusOr<std::vector<kube::Object>> all = object.Children({"access"});
  if (!all.ok()) return Wrong(where + ".access", "expected a list of objects");
  for (size_t i = 0; i < all->size(); ++i) {
    const std::string there = absl::StrCat(where, ".access[", i, "]");
    const absl::StatusOr<std::string> bucket = (*all)[i].String({"bucket"});
    if (!bucket.ok() || !file.buckets.contains(*bucket)) {
      return Wrong(there + ".bucket", "expected one of the buckets");
    }
    absl::StatusOr<AccessRules> rules = StaticRules((*all)[i], there);
    if (!rules.ok()) return rules.status();
    if (!account.access.emplace(*bucket, *std::move(rules)).second) {
      return Wrong(there + ".bucket", "it is listed twice");
    }
  }
  if (!file.accounts.emplace(*std::move(name), std::move(account)).second) {
    return Wrong(where + ".name", "it is listed twice");
  }
  return absl::OkStatus();
}

class StaticStore final : public BucketStore {
 public:
  explicit StaticStore(std::string path)
      : path_(std::move(path)),
        file_(path_, [](const std::string& text) { return ParseStaticStore(text); }) {}

  absl::Status Check() { return file_.Get().status(); }

  S3Info info() const override {
    const auto file = file_.Get();
    return file.ok() ? (*file)->info : S3Info();
  }

  bool has_fixed_accounts() const override { return true; }

  absl::Status Create(const std::string& name, const Parameters& parameters) override {
    const auto file = file_.Get();
    if (!file.ok()) return Unreadable(file.status());
    if (!(*file)->buckets.contains(name)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "bucket ", name, ": this driver creates none; create it by hand and list it in ", path_));
    }
    if (parameters.empty()) return absl::OkStatus();
    return absl::AlreadyExistsError(
        absl::StrCat("bucket ", name, ": it was made by hand, and has no parameters"));
  }

  absl::Status Find(const std::string& bucket_id) override {
    const auto file = file_.Get();
    if (!file.ok()) return Unreadable(file.status());
    return (*file)->buckets.contains(bucket_id) ? absl::OkStatus() : Missing(bucket_id);
  }

  absl::Status Delete(const std::string& bucket_id) override {
    const auto file = file_.Get();
    if (!file.ok()) return Unreadable(file.status());
    if (!(*file)->buckets.contains(bucket_id)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "bucket ", bucket_id, ": it was made by hand; remove it there and from ", path_));
  }

  absl::StatusOr<S3Keys> Grant(const std::string& account,
                               const std::vector<BucketAccess>& access) override {
    const auto file = file_.Get();
    if (!file.ok()) return Unreadable(file.status());
    for (const BucketAccess& each : access) {
      if (!(*file)->buckets.contains(each.bucket_id)) return Missing(each.bucket_id);
    }
    const auto found = (*file)->accounts.find(account);
    if (found == (*file)->accounts.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("account ", account,
                       ": this driver creates none; make its keys by hand and list it in ", path_));
    }
    for (const BucketAccess& each : access) {
      const auto has = found->second.access.find(each.bucket_id);
      if (has == found->second.access.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat("account ", account, ": it has no access to bucket ", each.bucket_id,
                         "; give it by hand and list it in ", path_));
      }
      if (has->second != each.rules) {
        return absl::AlreadyExistsError(
            absl::StrCat("account ", account, ": it has other access to bucket ", each.bucket_id));
      }
    }
    return S3Keys{.access_key = found->second.keys.access_key,
                  .secret_key = found->second.keys.secret_key.Copy()};
  }

  absl::Status Revoke(const std::string& account,
                      const std::vector<std::string>& bucket_ids) override {
    const auto file = file_.Get();
    if (!file.ok()) return Unreadable(file.status());
    const auto found = (*file)->accounts.find(account);
    if (found == (*file)->accounts.end()) return absl::OkStatus();
    for (const std::string& bucket_id : bucket_ids) {
      if (!found->second.access.contains(bucket_id)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("account ", account, ": its keys were made by hand; take its access to ",
                       "bucket ", bucket_id, " away there, and remove it from ", path_));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Missing(const std::string& bucket_id) {
    return absl::NotFoundError(absl::StrCat("bucket ", bucket_id, ": it does not exist"));
  }
  // The request may be right.
  static absl::Status Unreadable(const absl::Status& why) {
    return absl::UnavailableError(why.message());
  }

  const std::string path_;
  mutable WatchedFile<StaticStoreFile> file_;
};

}  // namespace

absl::StatusOr<StaticStoreFile> ParseStaticStore(std::string_view json) {
  const absl::StatusOr<kube::Object> object = kube::Object::ParseRequest(json);
  if (!object.ok()) return object.status();
  StaticStoreFile file;
  absl::StatusOr<std::string> endpoint = object->String({"endpoint"});
  absl::StatusOr<std::string> region = object->String({"region"});
  if (!endpoint.ok() || !region.ok()) return Wrong("endpoint, region", "expected texts");
  file.info = {.endpoint = *std::move(endpoint), .region = *std::move(region)};
  const absl::StatusOr<std::optional<std::string>> style = object->OptionalString({"addressing"});
  const std::string addressing = style.ok() ? style->value_or("path") : "";
  if (addressing != "path" && addressing != "virtual") {
    return Wrong("addressing", "expected path or virtual");
  }
  file.info.addressing = addressing == "path" ? Addressing::kPath : Addressing::kVirtual;
  const absl::StatusOr<std::vector<std::string>> buckets = object->Strings({"buckets"});
  if (!buckets.ok()) return Wrong("buckets", "expected a list of names");
  for (const std::string& name : *buckets) {
    if (!CheckBucketName(name).ok()) return Wrong("buckets", "expected names of S3's form");
    file.buckets.insert(name);
  }
  const absl::StatusOr<std::vector<kube::Object>> accounts = object->Children({"accounts"});
  if (!accounts.ok()) return Wrong("accounts", "expected a list of objects");
  for (size_t i = 0; i < accounts->size(); ++i) {
    absl::Status taken = TakeAccount((*accounts)[i], absl::StrCat("accounts[", i, "]"), file);
    if (!taken.ok()) return taken;
  }
  return file;
}

absl::StatusOr<std::unique_ptr<BucketStore>> OpenStaticStore(const std::string& path) {
  auto store = std::make_unique<StaticStore>(path);
  if (absl::Status read = store->Check(); !read.ok()) return read;
  return std::unique_ptr<BucketStore>(std::move(store));
}

}  // namespace cbt::cosi
