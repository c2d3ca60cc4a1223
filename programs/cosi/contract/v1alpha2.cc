// The messages of v1alpha2, which is not released: all that knows its numbers.

#include <utility>

#include "absl/status/status.h"
#include "base/wipe.h"
#include "programs/cosi/contract/contract.h"
#include "programs/cosi/contract/fields.h"

namespace cbt::cosi {
namespace {

using wire::AppendBytesField;
using wire::AppendBytesFieldAlways;
using wire::ProtoReader;
using wire::WireType;

// --- Messages of one enum, field 1.

template <typename Enum>
absl::Status TakeWrapped(const ProtoReader& reader, uint32_t field, Enum& value) {
  if (!reader.Is(field, WireType::kBytes)) return absl::OkStatus();
  return ForEachField(reader.bytes(), [&](const ProtoReader& inner) {
    TakeEnum(inner, 1, value);
    return absl::OkStatus();
  });
}

template <typename Enum>
void AppendWrapped(std::string& out, uint32_t field, Enum value) {
  std::string inner;
  AppendEnum(inner, 1, value);
  AppendBytesFieldAlways(out, field, inner);
}

absl::Status TakeProtocols(const ProtoReader& reader, uint32_t field,
                           std::vector<Protocol>& protocols) {
  if (!reader.Is(field, WireType::kBytes)) return absl::OkStatus();
  protocols.push_back(Protocol::kUnknown);
  return TakeWrapped(reader, field, protocols.back());
}

void AppendProtocols(std::string& out, uint32_t field, const std::vector<Protocol>& protocols) {
  for (const Protocol protocol : protocols) AppendWrapped(out, field, protocol);
}

// --- ObjectProtocolAndBucketInfo.

void AppendBucketInfo(std::string& out, uint32_t field, const BucketAnswer& bucket) {
  std::string info;
  if (bucket.s3.has_value()) {
    std::string s3;
    AppendBytesField(s3, 1, bucket.bucket_id);
    AppendBytesField(s3, 2, bucket.s3->endpoint);
    AppendBytesField(s3, 3, bucket.s3->region);
    AppendWrapped(s3, 4, bucket.s3->addressing);
    AppendBytesFieldAlways(info, 1, s3);
  }
  AppendBytesFieldAlways(out, field, info);
}

absl::Status TakeBucketInfo(const ProtoReader& reader, uint32_t field, BucketAnswer& bucket) {
  if (!reader.Is(field, WireType::kBytes)) return absl::OkStatus();
  return ForEachField(reader.bytes(), [&](const ProtoReader& info) {
    if (!info.Is(1, WireType::kBytes)) return absl::OkStatus();
    bucket.s3.emplace();
    return ForEachField(info.bytes(), [&](const ProtoReader& s3) {
      if (absl::Status taken = TakeText(s3, 2, bucket.s3->endpoint); !taken.ok()) return taken;
      if (absl::Status taken = TakeText(s3, 3, bucket.s3->region); !taken.ok()) return taken;
      return TakeWrapped(s3, 4, bucket.s3->addressing);
    });
  });
}

// --- Create and Find look alike.

template <typename Request>
absl::StatusOr<Request> ReadNamed(MessageBytes message, std::string Request::*name) {
  Request request;
  return ReadInto(request, message, [&](const ProtoReader& field) {
    if (absl::Status taken = TakeText(field, 1, request.*name); !taken.ok()) return taken;
    if (absl::Status taken = TakeProtocols(field, 2, request.protocols); !taken.ok()) return taken;
    return TakeEntry(field, 4, request.parameters);
  });
}

template <typename Request>
std::string WriteNamed(const Request& request, const std::string& name) {
  std::string out;
  AppendBytesField(out, 1, name);
  AppendProtocols(out, 2, request.protocols);
  AppendParameters(out, 4, request.parameters);
  return out;
}

class V1alpha2 final : public Contract {
 public:
  std::string_view Path(Method method) const noexcept override {
    switch (method) {
      case Method::kInfo:
        return "/sigs.k8s.io.cosi.v1alpha2.Identity/DriverGetInfo";
      case Method::kCreate:
        return "/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverCreateBucket";
      case Method::kFind:
        return "/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverGetExistingBucket";
      case Method::kDelete:
        return "/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverDeleteBucket";
      case Method::kGrant:
        return "/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverGrantBucketAccess";
      case Method::kRevoke:
        break;
    }
    return "/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverRevokeBucketAccess";
  }

  absl::StatusOr<CreateRequest> ReadCreate(MessageBytes message) const override {
    return ReadNamed<CreateRequest>(message, &CreateRequest::name);
  }
  absl::StatusOr<FindRequest> ReadFind(MessageBytes message) const override {
    return ReadNamed<FindRequest>(message, &FindRequest::bucket_id);
  }
  absl::StatusOr<DeleteRequest> ReadDelete(MessageBytes message) const override {
    DeleteRequest request;
    return ReadInto(request, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, request.bucket_id); !taken.ok()) return taken;
      return TakeEntry(field, 4, request.parameters);
    });
  }
  absl::StatusOr<GrantRequest> ReadGrant(MessageBytes message) const override {
    GrantRequest request;
    return ReadInto(request, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, request.account); !taken.ok()) return taken;
      if (absl::Status taken = TakeWrapped(field, 2, request.protocol); !taken.ok()) return taken;
      if (absl::Status taken = TakeWrapped(field, 3, request.authentication); !taken.ok()) {
        return taken;
      }
      if (absl::Status taken = TakeText(field, 4, request.service_account); !taken.ok()) {
        return taken;
      }
      if (absl::Status taken = TakeEntry(field, 5, request.parameters); !taken.ok()) return taken;
      if (!field.Is(6, WireType::kBytes)) return absl::OkStatus();
      AccessedBucket& bucket = request.buckets.emplace_back();
      return ForEachField(field.bytes(), [&](const ProtoReader& accessed) {
        if (absl::Status taken = TakeText(accessed, 1, bucket.bucket_id); !taken.ok()) {
          return taken;
        }
        return TakeWrapped(accessed, 2, bucket.mode);
      });
    });
  }
  absl::StatusOr<RevokeRequest> ReadRevoke(MessageBytes message) const override {
    RevokeRequest request;
    return ReadInto(request, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, request.account_id); !taken.ok()) return taken;
      if (absl::Status taken = TakeEntry(field, 5, request.parameters); !taken.ok()) return taken;
      if (!field.Is(6, WireType::kBytes)) return absl::OkStatus();
      std::string& bucket_id = request.bucket_ids.emplace_back();
      return ForEachField(field.bytes(), [&](const ProtoReader& accessed) {
        return TakeText(accessed, 1, bucket_id);
      });
    });
  }

  std::string WriteInfo(const DriverInfo& info) const override {
    std::string out;
    AppendBytesField(out, 1, info.name);
    AppendProtocols(out, 2, info.protocols);
    return out;
  }
  std::string WriteBucket(const BucketAnswer& bucket) const override {
    std::string out;
    AppendBytesField(out, 1, bucket.bucket_id);
    AppendBucketInfo(out, 2, bucket);
    return out;
  }
  std::string WriteAccess(const GrantAnswer& access) const override {
    std::string buckets;
    for (const BucketAnswer& bucket : access.buckets) {
      std::string info;
      AppendBytesField(info, 1, bucket.bucket_id);
      AppendBucketInfo(info, 2, bucket);
      AppendBytesFieldAlways(buckets, 2, info);
    }
    std::string s3;
    std::string credentials;
    const Wiper wipe_s3(s3);
    const Wiper wipe_credentials(credentials);
    size_t room = access.account_id.size() + buckets.size() + 64;
    if (access.keys.has_value()) {
      room += access.keys->access_key.size() + access.keys->secret_key.Reveal().size();
      s3.reserve(room);  // growing would leave copies of the secret behind
      credentials.reserve(room);
      AppendBytesField(s3, 1, access.keys->access_key);
      AppendBytesField(s3, 2, access.keys->secret_key.Reveal());
      AppendBytesFieldAlways(credentials, 1, s3);
    }
    std::string out;
    out.reserve(room);
    AppendBytesField(out, 1, access.account_id);
    out += buckets;
    AppendBytesFieldAlways(out, 3, credentials);
    return out;
  }

  std::string WriteCreate(const CreateRequest& request) const override {
    return WriteNamed(request, request.name);
  }
  std::string WriteFind(const FindRequest& request) const override {
    return WriteNamed(request, request.bucket_id);
  }
  std::string WriteDelete(const DeleteRequest& request) const override {
    std::string out;
    AppendBytesField(out, 1, request.bucket_id);
    AppendParameters(out, 4, request.parameters);
    return out;
  }
  std::string WriteGrant(const GrantRequest& request) const override {
    std::string out;
    AppendBytesField(out, 1, request.account);
    AppendWrapped(out, 2, request.protocol);
    AppendWrapped(out, 3, request.authentication);
    AppendBytesField(out, 4, request.service_account);
    AppendParameters(out, 5, request.parameters);
    for (const AccessedBucket& bucket : request.buckets) {
      std::string accessed;
      AppendBytesField(accessed, 1, bucket.bucket_id);
      AppendWrapped(accessed, 2, bucket.mode);
      AppendBytesFieldAlways(out, 6, accessed);
    }
    return out;
  }
  std::string WriteRevoke(const RevokeRequest& request) const override {
    std::string out;
    AppendBytesField(out, 1, request.account_id);
    AppendWrapped(out, 2, Protocol::kS3);
    AppendWrapped(out, 3, Authentication::kKey);
    AppendParameters(out, 5, request.parameters);
    for (const std::string& bucket_id : request.bucket_ids) {
      std::string accessed;
      AppendBytesField(accessed, 1, bucket_id);
      AppendBytesFieldAlways(out, 6, accessed);
    }
    return out;
  }

  absl::StatusOr<DriverInfo> ReadInfo(MessageBytes message) const override {
    DriverInfo info;
    return ReadInto(info, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, info.name); !taken.ok()) return taken;
      return TakeProtocols(field, 2, info.protocols);
    });
  }
  absl::StatusOr<BucketAnswer> ReadBucket(MessageBytes message) const override {
    BucketAnswer bucket;
    return ReadInto(bucket, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, bucket.bucket_id); !taken.ok()) return taken;
      return TakeBucketInfo(field, 2, bucket);
    });
  }
  absl::StatusOr<GrantAnswer> ReadAccess(MessageBytes message) const override {
    GrantAnswer access;
    return ReadInto(access, message, [&](const ProtoReader& field) {
      if (field.Is(3, WireType::kBytes)) return TakeKeys(field.bytes(), access);
      if (!field.Is(2, WireType::kBytes)) return TakeText(field, 1, access.account_id);
      BucketAnswer& bucket = access.buckets.emplace_back();
      return ForEachField(field.bytes(), [&](const ProtoReader& info) {
        if (absl::Status taken = TakeText(info, 1, bucket.bucket_id); !taken.ok()) return taken;
        return TakeBucketInfo(info, 2, bucket);
      });
    });
  }

 private:
  static absl::Status TakeKeys(MessageBytes message, GrantAnswer& access) {
    return ForEachField(message, [&](const ProtoReader& info) {
      if (!info.Is(1, WireType::kBytes)) return absl::OkStatus();
      access.keys.emplace();
      return ForEachField(info.bytes(), [&](const ProtoReader& s3) {
        if (s3.Is(2, WireType::kBytes)) access.keys->secret_key = Secret(s3.text());
        return TakeText(s3, 1, access.keys->access_key);
      });
    });
  }
};

}  // namespace

const Contract& V1alpha2Contract() {
  static const V1alpha2 contract;
  return contract;
}

}  // namespace cbt::cosi
