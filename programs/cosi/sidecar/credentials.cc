#include "programs/cosi/sidecar/credentials.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"

namespace cbt::kube::cosi {
namespace {

struct Field {
  const char* name;  // in JSON
  const char* key;   // in an environment
};
constexpr std::array<Field, 4> kS3Fields = {{{"endpoint", "COSI_S3_ENDPOINT"},
                                             {"region", "COSI_S3_REGION"},
                                             {"accessKeyID", "COSI_S3_ACCESS_KEY_ID"},
                                             {"accessSecretKey", "COSI_S3_ACCESS_SECRET_KEY"}}};

std::string RegionOf(const Object& protocol) {
  return protocol.OptionalString({"s3", "region"}).value_or(std::nullopt).value_or("");
}

}  // namespace

Secrets SecretData(const std::string& bucket_id, const Object& protocol,
                   const Secret& credentials) {
  Secrets data;
  data.Set("COSI_BUCKET_ID", bucket_id);
  Object info;
  info.SetString({"spec", "bucketName"}, bucket_id);
  if (!protocol.Has({"s3"})) {
    data.Set("BucketInfo", info.ToJson());
    if (!credentials.empty()) data.Set("credentials", credentials.Reveal());
    return data;
  }
  data.Set("COSI_PROTOCOL", "S3");
  data.Set("COSI_S3_BUCKET_ID", bucket_id);
  info.SetStrings({"spec", "protocols"}, {"s3"});
  absl::StatusOr<Object> given = Object::Parse(credentials.Reveal());
  if (!given.ok() && !credentials.empty()) data.Set("credentials", credentials.Reveal());
  if (!given.ok()) given = Object();
  if (!given->Has({"region"})) given->SetString({"region"}, RegionOf(protocol));
  for (const Field& field : kS3Fields) {
    const absl::StatusOr<Secret> value = given->SecretString({field.name});
    if (!value.ok() || value->empty()) continue;
    data.Set(field.key, value->Reveal());
    info.SetString({"spec", "secretS3", field.name}, value->Reveal());
  }
  const bool has_key = info.Has({"spec", "secretS3", "accessKeyID"});
  info.SetString({"spec", "authenticationType"}, has_key ? "Key" : "IAM");
  // Buckets are paths of the endpoint: any name works without DNS.
  data.Set("COSI_S3_ADDRESSING_STYLE", "path");
  data.Set("BucketInfo", info.ToJson());
  return data;
}

}  // namespace cbt::kube::cosi
