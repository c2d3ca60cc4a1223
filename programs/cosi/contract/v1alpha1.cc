#include "programs/cosi/contract/v1alpha1.h"

#include "absl/status/status.h"
#include "programs/cosi/contract/fields.h"

namespace cbt::cosi {

using wire::AppendBytesField;
using wire::ProtoReader;

absl::StatusOr<FindRequest> V1alpha1::ReadFind(MessageBytes /*message*/) const {
  return absl::UnimplementedError("cosi.v1alpha1 has no such method");
}

std::string V1alpha1::WriteFind(const FindRequest& /*request*/) const { return {}; }

absl::StatusOr<DriverInfo> V1alpha1::ReadInfo(MessageBytes message) const {
  DriverInfo info;
  return ReadInto(info, message,
                  [&](const ProtoReader& field) { return TakeText(field, 1, info.name); });
}

std::string V1alpha1::WriteInfo(const DriverInfo& info) const {
  std::string out;
  AppendBytesField(out, 1, info.name);
  return out;
}

std::string V1alpha1::OfOneBucket(const GrantRequest& request) {
  std::string out;
  if (!request.buckets.empty()) AppendBytesField(out, 1, request.buckets.front().bucket_id);
  AppendBytesField(out, 2, request.account);
  return out;
}

std::string V1alpha1::OfOneBucket(const RevokeRequest& request) {
  std::string out;
  if (!request.bucket_ids.empty()) AppendBytesField(out, 1, request.bucket_ids.front());
  AppendBytesField(out, 2, request.account_id);
  return out;
}

}  // namespace cbt::cosi
