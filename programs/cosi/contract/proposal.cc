// The proposal's messages (cosi.v1alpha1, Provisioner...).

#include <utility>

#include "absl/status/status.h"
#include "base/wipe.h"
#include "programs/cosi/contract/contract.h"
#include "programs/cosi/contract/fields.h"
#include "programs/cosi/contract/s3_credentials.h"
#include "programs/cosi/contract/v1alpha1.h"

namespace cbt::cosi {
namespace {

using wire::AppendBytesField;
using wire::AppendBytesFieldAlways;
using wire::ProtoReader;
using wire::WireType;

// The numbers of Protocol's members are those of `enum Protocol`.
absl::Status TakeProposalProtocol(MessageBytes message, CreateRequest& request) {
  return ForEachField(message, [&](const ProtoReader& type) -> absl::Status {
    if (type.wire_type() != WireType::kBytes || type.field() < 1 || type.field() > 3) {
      return absl::OkStatus();
    }
    // Of a oneof, the last one counts.
    request.protocols = {static_cast<Protocol>(type.field())};
    request.region.clear();
    if (request.protocols.front() != Protocol::kS3) return absl::OkStatus();
    return ForEachField(type.bytes(),
                        [&](const ProtoReader& s3) { return TakeText(s3, 1, request.region); });
  });
}

class Proposal final : public V1alpha1 {
 public:
  std::string_view Path(Method method) const noexcept override {
    switch (method) {
      case Method::kInfo:
        return "/cosi.v1alpha1.Provisioner/ProvisionerGetInfo";
      case Method::kCreate:
        return "/cosi.v1alpha1.Provisioner/ProvisionerCreateBucket";
      case Method::kFind:
        return {};
      case Method::kDelete:
        return "/cosi.v1alpha1.Provisioner/ProvisionerDeleteBucket";
      case Method::kGrant:
        return "/cosi.v1alpha1.Provisioner/ProvisionerGrantBucketAccess";
      case Method::kRevoke:
        break;
    }
    return "/cosi.v1alpha1.Provisioner/ProvisionerRevokeBucketAccess";
  }

  absl::StatusOr<CreateRequest> ReadCreate(MessageBytes message) const override {
    CreateRequest request;
    return ReadInto(request, message, [&](const ProtoReader& field) {
      if (field.Is(2, WireType::kBytes)) return TakeProposalProtocol(field.bytes(), request);
      if (absl::Status taken = TakeText(field, 1, request.name); !taken.ok()) return taken;
      return TakeEntry(field, 3, request.parameters);
    });
  }
  absl::StatusOr<DeleteRequest> ReadDelete(MessageBytes message) const override {
    DeleteRequest request;
    return ReadInto(request, message, [&](const ProtoReader& field) {
      return TakeText(field, 1, request.bucket_id);
    });
  }
  absl::StatusOr<GrantRequest> ReadGrant(MessageBytes message) const override {
    GrantRequest request{.buckets = {AccessedBucket()},
                         .policy = std::string(),
                         .protocol = Protocol::kS3,
                         .authentication = Authentication::kKey};
    return ReadInto(request, message, [&](const ProtoReader& field) {
      for (const auto& [number, text] : {std::pair(1u, &request.buckets.front().bucket_id),
                                         {2u, &request.account},
                                         {3u, &*request.policy}}) {
        if (absl::Status taken = TakeText(field, number, *text); !taken.ok()) return taken;
      }
      return TakeEntry(field, 4, request.parameters);
    });
  }
  absl::StatusOr<RevokeRequest> ReadRevoke(MessageBytes message) const override {
    RevokeRequest request{.bucket_ids = {""}};
    return ReadInto(request, message, [&](const ProtoReader& field) {
      if (absl::Status taken = TakeText(field, 1, request.bucket_ids.front()); !taken.ok()) {
        return taken;
      }
      return TakeText(field, 2, request.account_id);
    });
  }

  std::string WriteBucket(const BucketAnswer& bucket) const override {
    std::string out;
    AppendBytesField(out, 1, bucket.bucket_id);
    return out;
  }
  std::string WriteAccess(const GrantAnswer& access) const override {
    std::string json = access.keys.has_value() ? WriteS3Credentials(access) : "";
    const Wiper wiper(json);
    std::string out;
    out.reserve(access.account_id.size() + json.size() + 32);  // growing would leave copies behind
    AppendBytesField(out, 1, access.account_id);
    AppendBytesField(out, 2, json);
    return out;
  }

  std::string WriteCreate(const CreateRequest& request) const override {
    std::string out;
    AppendBytesField(out, 1, request.name);
    if (!request.protocols.empty()) {
      std::string s3;
      AppendBytesField(s3, 1, request.region);
      std::string type;
      AppendBytesFieldAlways(type, static_cast<uint32_t>(request.protocols.front()), s3);
      AppendBytesFieldAlways(out, 2, type);
    }
    AppendParameters(out, 3, request.parameters);
    return out;
  }
  std::string WriteDelete(const DeleteRequest& request) const override {
    std::string out;
    AppendBytesField(out, 1, request.bucket_id);
    return out;
  }
  std::string WriteGrant(const GrantRequest& request) const override {
    std::string out = OfOneBucket(request);
    AppendBytesField(out, 3, request.policy.value_or(""));
    AppendParameters(out, 4, request.parameters);
    return out;
  }
  std::string WriteRevoke(const RevokeRequest& request) const override {
    return OfOneBucket(request);
  }

  absl::StatusOr<BucketAnswer> ReadBucket(MessageBytes message) const override {
    BucketAnswer bucket;
    return ReadInto(bucket, message,
                    [&](const ProtoReader& field) { return TakeText(field, 1, bucket.bucket_id); });
  }
  absl::StatusOr<GrantAnswer> ReadAccess(MessageBytes message) const override {
    GrantAnswer access;
    std::string_view json;
    absl::Status read = ForEachField(message, [&](const ProtoReader& field) {
      if (field.Is(2, WireType::kBytes)) json = field.text();
      return TakeText(field, 1, access.account_id);
    });
    if (!read.ok()) return read;
    if (json.empty()) return access;
    if (absl::Status parsed = ReadS3Credentials(json, access); !parsed.ok()) return parsed;
    return access;
  }
};

}  // namespace

const Contract& ProposalContract() {
  static const Proposal contract;
  return contract;
}

}  // namespace cbt::cosi
