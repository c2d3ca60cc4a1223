#include "programs/cosi/sidecar/messages.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::kube::cosi {
namespace {

using wire::AppendBytesField;
using wire::AppendBytesFieldAlways;
using wire::AppendVarintField;
using wire::ProtoReader;
using wire::WireType;

// What objects can hold of IDs and names.
constexpr size_t kMaxId = 2048;
constexpr size_t kMaxName = 63;
constexpr size_t kMaxCredentials = 256 * 1024;

void AppendMap(std::string& out, uint32_t field, const Parameters& values) {
  for (const auto& [key, value] : values) {
    std::string entry;
    AppendBytesField(entry, 1, key);
    AppendBytesField(entry, 2, value);
    AppendBytesFieldAlways(out, field, entry);
  }
}

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

// Field 1 of an answer.
absl::StatusOr<std::string> TextOfAnswer(std::span<const uint8_t> answer, const char* what) {
  std::string text;
  ProtoReader reader(answer);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) text = reader.text();
  }
  if (!reader.status().ok() || !IsUtf8(text)) return Unreadable(what);
  return text;
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
  AppendMap(out, 3, parameters);
  return out;
}

std::string EncodeDelete(const std::string& bucket_id) {
  std::string out;
  AppendBytesField(out, 1, bucket_id);
  return out;
}

std::string EncodeGrant(const std::string& bucket_id, const std::string& account_name,
                        const std::string& policy, const Parameters& parameters) {
  std::string out;
  AppendBytesField(out, 1, bucket_id);
  AppendBytesField(out, 2, account_name);
  AppendBytesField(out, 3, policy);
  AppendMap(out, 4, parameters);
  return out;
}

std::string EncodeRevoke(const std::string& bucket_id, const std::string& account_id) {
  std::string out;
  AppendBytesField(out, 1, bucket_id);
  AppendBytesField(out, 2, account_id);
  return out;
}

absl::StatusOr<std::string> DecodeInfo(std::span<const uint8_t> answer) {
  absl::StatusOr<std::string> name = TextOfAnswer(answer, "ProvisionerGetInfo");
  if (!name.ok()) return name;
  if (!IsDriverName(*name)) {
    return absl::InternalError(
        "the driver's name is not 1 to 63 letters, digits, '-' and '.' between letters or digits");
  }
  return name;
}

absl::StatusOr<std::string> DecodeCreate(std::span<const uint8_t> answer) {
  absl::StatusOr<std::string> id = TextOfAnswer(answer, "ProvisionerCreateBucket");
  if (!id.ok()) return id;
  if (id->empty() || id->size() > kMaxId) {
    return absl::InternalError("the driver's bucket_id does not have 1 to 2048 bytes");
  }
  return id;
}

absl::StatusOr<GrantAnswer> DecodeGrant(std::span<const uint8_t> answer) {
  GrantAnswer granted;
  ProtoReader reader(answer);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) granted.account_id = reader.text();
    if (reader.Is(2, WireType::kBytes)) granted.credentials = Secret(reader.text());
  }
  if (!reader.status().ok() || !IsUtf8(granted.account_id) ||
      !IsUtf8(granted.credentials.Reveal())) {
    return Unreadable("ProvisionerGrantBucketAccess");
  }
  if (granted.account_id.size() > kMaxId || granted.credentials.Reveal().size() > kMaxCredentials) {
    return absl::InternalError("the driver's account_id or credentials are too long");
  }
  return granted;
}

}  // namespace cbt::kube::cosi
