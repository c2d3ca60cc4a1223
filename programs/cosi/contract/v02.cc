// The messages of v0.2 (cosi.v1alpha1, Driver...).

#include <utility>

#include "absl/status/status.h"
#include "base/wipe.h"
#include "programs/cosi/contract/contract.h"
#include "programs/cosi/contract/fields.h"
#include "programs/cosi/contract/v1alpha1.h"

namespace cbt::cosi {
namespace {

using wire::AppendBytesField;
using wire::AppendBytesFieldAlways;
using wire::ProtoReader;
using wire::WireType;

constexpr uint64_t kS3SignatureV4 = 2;

// An entry of a map, with what is secret in it.
void AppendSecretEntry(std::string& out, std::string_view key, std::string_view value) {
  std::string entry;
  const Wiper wiper(entry);
  entry.reserve(key.size() + value.size() + 32);
  AppendBytesField(entry, 1, key);
  AppendBytesField(entry, 2, value);
  AppendBytesFieldAlways(out, 1, entry);
}

absl::Status TakeSecretEntry(MessageBytes message, S3Info& s3, S3Keys& keys) {
  std::string key;
  std::string_view value;
  absl::Status read = ForEachField(message, [&](const ProtoReader& entry) {
    if (entry.Is(2, WireType::kBytes)) value = entry.text();
    return TakeText(entry, 1, key);
  });
  if (!read.ok()) return read;
  if (key == "endpoint") s3.endpoint = value;
  if (key == "region") s3.region = value;
  if (key == "accessKeyID") keys.access_key = value;
  if (key == "accessSecretKey") keys.secret_key = Secret(value);
  return absl::OkStatus();
}

class V02 final : public V1alpha1 {
 public:
  std::string_view Path(Method method) const noexcept override {
    switch (method) {
      case Method::kInfo:
        return "/cosi.v1alpha1.Identity/DriverGetInfo";
      case Method::kCreate:
        return "/cosi.v1alpha1.Provisioner/DriverCreateBucket";
      case Method::kFind:
        return {};
      case Method::kDelete:
        return "/cosi.v1alpha1.Provisioner/DriverDeleteBucket";
      case Method::kGrant:
        return "/cosi.v1alpha1.Provisioner/DriverGrantBucketAccess";
      case Method::kRevoke:
        break;
    }
    return "/cosi.v1alpha1.Provisioner/DriverRevokeBucketAccess";
  }

  absl::StatusOr<CreateRequest> ReadCreate(MessageBytes message) const override {
    CreateRequest request;
    return ReadInto(request, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, request.name); !taken.ok()) return taken;
      return TakeEntry(field, 2, request.parameters);
    });
  }
  absl::StatusOr<DeleteRequest> ReadDelete(MessageBytes message) const override {
    DeleteRequest request;
    return ReadInto(request, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, request.bucket_id); !taken.ok()) return taken;
      return TakeEntry(field, 2, request.parameters);
    });
  }
  absl::StatusOr<GrantRequest> ReadGrant(MessageBytes message) const override {
    // Read and write is all that its access classes can mean.
    GrantRequest request{.buckets = {{.mode = AccessMode::kReadWrite}}, .protocol = Protocol::kS3};
    return ReadInto(request, message, [&](const ProtoReader& field) {
      TakeEnum(field, 3, request.authentication);
      if (absl::Status taken = TakeText(field, 1, request.buckets.front().bucket_id); !taken.ok()) {
        return taken;
      }
      if (absl::Status taken = TakeText(field, 2, request.account); !taken.ok()) return taken;
      return TakeEntry(field, 4, request.parameters);
    });
  }
  absl::StatusOr<RevokeRequest> ReadRevoke(MessageBytes message) const override {
    RevokeRequest request{.bucket_ids = {""}};
    return ReadInto(request, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, request.bucket_ids.front()); !taken.ok()) {
        return taken;
      }
      if (absl::Status taken = TakeText(field, 2, request.account_id); !taken.ok()) return taken;
      return TakeEntry(field, 3, request.parameters);
    });
  }

  std::string WriteBucket(const BucketAnswer& bucket) const override {
    std::string out;
    AppendBytesField(out, 1, bucket.bucket_id);
    if (!bucket.s3.has_value()) return out;
    std::string s3;
    AppendBytesField(s3, 1, bucket.s3->region);
    wire::AppendVarintField(s3, 2, kS3SignatureV4);
    std::string protocol;
    AppendBytesFieldAlways(protocol, 1, s3);
    AppendBytesFieldAlways(out, 2, protocol);
    return out;
  }
  std::string WriteAccess(const GrantAnswer& access) const override {
    std::string out;
    if (!access.keys.has_value()) {
      AppendBytesField(out, 1, access.account_id);
      return out;
    }
    S3Info s3;
    if (!access.buckets.empty()) s3 = access.buckets.front().s3.value_or(S3Info());
    const std::string_view secret_key = access.keys->secret_key.Reveal();
    // Growing would leave copies of the secret behind.
    const size_t room = access.account_id.size() + s3.endpoint.size() + s3.region.size() +
                        access.keys->access_key.size() + secret_key.size() + 256;
    std::string details;
    std::string entry;
    const Wiper wipe_details(details);
    const Wiper wipe_entry(entry);
    details.reserve(room);
    entry.reserve(room);
    out.reserve(room);
    AppendSecretEntry(details, "accessKeyID", access.keys->access_key);
    AppendSecretEntry(details, "accessSecretKey", secret_key);
    AppendSecretEntry(details, "endpoint", s3.endpoint);
    AppendSecretEntry(details, "region", s3.region);
    AppendBytesField(entry, 1, "s3");
    AppendBytesFieldAlways(entry, 2, details);
    AppendBytesField(out, 1, access.account_id);
    AppendBytesFieldAlways(out, 2, entry);
    return out;
  }

  std::string WriteCreate(const CreateRequest& request) const override {
    std::string out;
    AppendBytesField(out, 1, request.name);
    AppendParameters(out, 2, request.parameters);
    return out;
  }
  std::string WriteDelete(const DeleteRequest& request) const override {
    std::string out;
    AppendBytesField(out, 1, request.bucket_id);
    AppendParameters(out, 2, request.parameters);
    return out;
  }
  std::string WriteGrant(const GrantRequest& request) const override {
    std::string out = OfOneBucket(request);
    AppendEnum(out, 3, request.authentication);
    AppendParameters(out, 4, request.parameters);
    return out;
  }
  std::string WriteRevoke(const RevokeRequest& request) const override {
    std::string out = OfOneBucket(request);
    AppendParameters(out, 3, request.parameters);
    return out;
  }

  absl::StatusOr<BucketAnswer> ReadBucket(MessageBytes message) const override {
    BucketAnswer bucket;
    return ReadInto(bucket, message, [&](const ProtoReader& field) {
      if (!field.Is(2, WireType::kBytes)) return TakeText(field, 1, bucket.bucket_id);
      return ForEachField(field.bytes(), [&](const ProtoReader& type) {
        if (!type.Is(1, WireType::kBytes)) return absl::OkStatus();
        bucket.s3.emplace();
        return ForEachField(type.bytes(), [&](const ProtoReader& s3) {
          return TakeText(s3, 1, bucket.s3->region);
        });
      });
    });
  }
  absl::StatusOr<GrantAnswer> ReadAccess(MessageBytes message) const override {
    GrantAnswer access;
    return ReadInto(access, message, [&](const ProtoReader& field) {
      if (!field.Is(2, WireType::kBytes)) return TakeText(field, 1, access.account_id);
      return TakeCredentials(field.bytes(), access);
    });
  }

 private:
  // An entry of the map of credentials.
  static absl::Status TakeCredentials(MessageBytes message, GrantAnswer& access) {
    std::string protocol;
    MessageBytes details;
    absl::Status read = ForEachField(message, [&](const ProtoReader& entry) {
      if (entry.Is(2, WireType::kBytes)) details = entry.bytes();
      return TakeText(entry, 1, protocol);
    });
    if (!read.ok()) return read;
    if (protocol != "s3") return absl::OkStatus();
    S3Info s3;
    S3Keys keys;
    read = ForEachField(details, [&](const ProtoReader& secret) {
      if (!secret.Is(1, WireType::kBytes)) return absl::OkStatus();
      return TakeSecretEntry(secret.bytes(), s3, keys);
    });
    if (!read.ok()) return read;
    access.buckets = {BucketAnswer{.s3 = std::move(s3)}};
    access.keys = std::move(keys);
    return absl::OkStatus();
  }
};

}  // namespace

const Contract& V02Contract() {
  static const V02 contract;
  return contract;
}

}  // namespace cbt::cosi
