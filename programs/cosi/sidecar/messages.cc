#include "programs/cosi/sidecar/messages.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "programs/cosi/contract/contract.h"
#include "programs/cosi/contract/fields.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::kube::cosi {
namespace {

using cbt::cosi::ProposalContract;
using wire::AppendBytesField;
using wire::AppendBytesFieldAlways;
using wire::AppendVarintField;
using wire::ProtoReader;
using wire::WireType;

// What objects can hold of IDs and names.
constexpr size_t kMaxId = 2048;
constexpr size_t kMaxName = 63;
constexpr size_t kMaxCredentials = 256 * 1024;

std::string TextOf(const Object& object, const Path& path) {
  return object.OptionalString(path).value_or(std::nullopt).value_or("");
}

absl::StatusOr<std::string> EncodeProtocol(const Object& protocol) {
  std::string inner;
  std::string out;
  if (protocol.Has({"s3"})) {
    AppendBytesField(inner, 1, TextOf(protocol, {"s3", "region"}));
    const std::string version = TextOf(protocol, {"s3", "signatureVersion"});
    AppendVarintField(inner, 2, version == "S3V2" ? 1 : version == "S3V4" ? 2 : 0);
    AppendBytesFieldAlways(out, 1, inner);
  } else if (protocol.Has({"azureBlob"})) {
    AppendBytesField(inner, 1, TextOf(protocol, {"azureBlob", "storageAccount"}));
    AppendBytesFieldAlways(out, 2, inner);
  } else if (protocol.Has({"gs"})) {
    AppendBytesField(inner, 1, TextOf(protocol, {"gs", "privateKeyName"}));
    AppendBytesField(inner, 2, TextOf(protocol, {"gs", "projectId"}));
    AppendBytesField(inner, 3, TextOf(protocol, {"gs", "serviceAccount"}));
    AppendBytesFieldAlways(out, 3, inner);
  } else {
    return absl::InvalidArgumentError("spec.protocol has none of s3, azureBlob and gs");
  }
  return out;
}

absl::Status Unreadable(const char* what) {
  return absl::InternalError(absl::StrCat("the driver's answer can't be read: ", what));
}

bool IsDriverName(std::string_view name) {
  const auto is_alnum = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  return !name.empty() && name.size() <= kMaxName && is_alnum(name.front()) &&
         is_alnum(name.back()) && std::all_of(name.begin(), name.end(), [&](char c) {
           return is_alnum(c) || c == '-' || c == '.';
         });
}

}  // namespace

absl::StatusOr<std::string> EncodeCreate(const std::string& name, const Object& protocol,
                                         const Parameters& parameters) {
  const absl::StatusOr<std::string> inner = EncodeProtocol(protocol);
  if (!inner.ok()) return inner.status();
  std::string out;
  AppendBytesField(out, 1, name);
  AppendBytesFieldAlways(out, 2, *inner);
  cbt::cosi::AppendParameters(out, 3, parameters);
  return out;
}

std::string EncodeDelete(const std::string& bucket_id) {
  return ProposalContract().WriteDelete({.bucket_id = bucket_id});
}

std::string EncodeGrant(const std::string& bucket_id, const std::string& account_name,
                        const std::string& policy, const Parameters& parameters) {
  return ProposalContract().WriteGrant({.account = account_name,
                                        .buckets = {{.bucket_id = bucket_id}},
                                        .policy = policy,
                                        .parameters = parameters});
}

std::string EncodeRevoke(const std::string& bucket_id, const std::string& account_id) {
  return ProposalContract().WriteRevoke({.account_id = account_id, .bucket_ids = {bucket_id}});
}

absl::StatusOr<std::string> DecodeInfo(std::span<const uint8_t> answer) {
  absl::StatusOr<cbt::cosi::DriverInfo> info = ProposalContract().ReadInfo(answer);
  if (!info.ok()) return Unreadable("ProvisionerGetInfo");
  if (!IsDriverName(info->name)) {
    return absl::InternalError(
        "the driver's name is not 1 to 63 letters, digits, '-' and '.' between letters or digits");
  }
  return std::move(info->name);
}

absl::StatusOr<std::string> DecodeCreate(std::span<const uint8_t> answer) {
  absl::StatusOr<cbt::cosi::BucketAnswer> bucket = ProposalContract().ReadBucket(answer);
  if (!bucket.ok()) return Unreadable("ProvisionerCreateBucket");
  if (bucket->bucket_id.empty() || bucket->bucket_id.size() > kMaxId) {
    return absl::InternalError("the driver's bucket_id does not have 1 to 2048 bytes");
  }
  return std::move(bucket->bucket_id);
}

absl::StatusOr<GrantAnswer> DecodeGrant(std::span<const uint8_t> answer) {
  GrantAnswer granted;
  const absl::Status read = cbt::cosi::ForEachField(answer, [&](const ProtoReader& field) {
    if (field.Is(2, WireType::kBytes)) granted.credentials = Secret(field.text());
    return cbt::cosi::TakeText(field, 1, granted.account_id);
  });
  if (!read.ok() || !IsUtf8(granted.credentials.Reveal())) {
    return Unreadable("ProvisionerGrantBucketAccess");
  }
  if (granted.account_id.size() > kMaxId || granted.credentials.Reveal().size() > kMaxCredentials) {
    return absl::InternalError("the driver's account_id or credentials are too long");
  }
  return granted;
}

}  // namespace cbt::kube::cosi
