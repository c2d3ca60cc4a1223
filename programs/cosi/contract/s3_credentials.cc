#include "programs/cosi/contract/s3_credentials.h"

#include <utility>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"

namespace cbt::cosi {

std::string WriteS3Credentials(const GrantAnswer& access) {
  // Its memory is wiped.
  kube::Object json;
  if (!access.buckets.empty() && access.buckets.front().s3.has_value()) {
    const S3Info& s3 = *access.buckets.front().s3;
    json.SetString({"endpoint"}, s3.endpoint);
    json.SetString({"region"}, s3.region);
  }
  json.SetString({"accessKeyID"}, access.keys->access_key);
  json.SetString({"accessSecretKey"}, access.keys->secret_key.Reveal());
  return json.ToJson();
}

absl::Status ReadS3Credentials(std::string_view json, GrantAnswer& access) {
  const absl::StatusOr<kube::Object> parsed = kube::Object::ParseRequest(json);
  if (!parsed.ok()) return absl::InvalidArgumentError("credentials: not a JSON object");
  S3Info s3;
  S3Keys keys;
  for (const auto& [name, text] : {std::pair("endpoint", &s3.endpoint),
                                   {"region", &s3.region},
                                   {"accessKeyID", &keys.access_key}}) {
    absl::StatusOr<std::optional<std::string>> value = parsed->OptionalString({name});
    if (!value.ok()) return value.status();
    *text = value->value_or("");
  }
  absl::StatusOr<Secret> secret = parsed->SecretString({"accessSecretKey"});
  if (!secret.ok()) return secret.status();
  keys.secret_key = *std::move(secret);
  access.buckets = {BucketAnswer{.s3 = std::move(s3)}};
  access.keys = std::move(keys);
  return absl::OkStatus();
}

}  // namespace cbt::cosi
