#include "rpc/contract/contract.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {
namespace {

using wire::ProtoReader;
using wire::WireType;

// Map entries are messages with these two fields.
constexpr uint32_t kMapKey = 1;
constexpr uint32_t kMapValue = 2;

absl::Status NotUtf8(size_t position) {
  return absl::InvalidArgumentError(
      absl::StrCat("request: the string at byte ", position, " is not valid UTF-8"));
}

absl::Status DecodeSecret(std::span<const uint8_t> bytes, size_t position, Secrets& secrets) {
  std::string_view key;
  std::string_view value;
  ProtoReader reader(bytes, position);
  while (reader.Next()) {
    const bool is_key = reader.Is(kMapKey, WireType::kBytes);
    if (!is_key && !reader.Is(kMapValue, WireType::kBytes)) continue;
    if (!IsUtf8(reader.text())) return NotUtf8(reader.content_position());
    (is_key ? key : value) = reader.text();
  }
  if (absl::Status status = reader.status(); !status.ok()) return status;
  secrets.Set(std::string(key), value);
  return absl::OkStatus();
}

}  // namespace

std::string_view ApiName(Api api) noexcept {
  switch (api) {
    case Api::kCsi:
      return "csi";
    case Api::kKubernetes:
      return "kubernetes";
    case Api::kSession:
      return "session";
    case Api::kPaged:
      break;
  }
  return "paged";
}

std::optional<Api> ParseApi(std::string_view name) noexcept {
  for (const Api api : {Api::kCsi, Api::kKubernetes, Api::kSession, Api::kPaged}) {
    if (ApiName(api) == name) return api;
  }
  return std::nullopt;
}

const Contract& ContractOf(Api api) noexcept {
  switch (api) {
    case Api::kKubernetes:
      return kKubernetesContract;
    case Api::kSession:
      return kSessionContract;
    case Api::kPaged:
      return kPagedContract;
    case Api::kCsi:
      break;
  }
  return kCsiContract;
}

absl::StatusOr<MetadataRequest> DecodeRequest(const MethodContract& method,
                                              std::span<const uint8_t> bytes) {
  const RequestFields& fields = method.fields;
  MetadataRequest request;
  if (fields.is_delta() && !method.base_is_optional) request.base_snapshot_id.emplace();
  ProtoReader reader(bytes);
  size_t secrets = 0;
  while (reader.Next()) {
    // Field numbers are positive, so fields that this request does not have never match.
    const uint32_t field = reader.field();
    if (reader.wire_type() == WireType::kVarint) {
      if (field == fields.starting_offset) {
        request.starting_offset = static_cast<int64_t>(reader.varint());
      } else if (field == fields.max_results) {
        const auto low = static_cast<uint32_t>(reader.varint());
        request.max_results =
            method.unsigned_numbers ? int64_t{low} : int64_t{static_cast<int32_t>(low)};
      }
    } else if (reader.wire_type() == WireType::kBytes) {
      const bool is_text = field == fields.token || field == fields.name_space ||
                           field == fields.volume_id || field == fields.page_token ||
                           field == fields.base_snapshot_id || field == fields.target_snapshot_id;
      if (is_text) {
        const std::string_view text = reader.text();
        if (!IsUtf8(text)) return NotUtf8(reader.content_position());
        if (field == fields.token) {
          request.token = Secret(text);
        } else if (field == fields.name_space) {
          request.name_space = text;
        } else if (field == fields.volume_id) {
          request.volume_id = text;
        } else if (field == fields.page_token) {
          request.page_token = text;
        } else if (field == fields.target_snapshot_id) {
          request.target_snapshot_id = text;
        } else {
          request.base_snapshot_id = text;
        }
      } else if (field == fields.secrets) {
        if (++secrets > kMaxSecrets) {
          return absl::InvalidArgumentError(
              absl::StrCat("request: more than ", kMaxSecrets, " secrets"));
        }
        if (absl::Status status =
                DecodeSecret(reader.bytes(), reader.content_position(), request.secrets);
            !status.ok()) {
          return status;
        }
      }
    }
  }
  if (absl::Status status = reader.status(); !status.ok()) return status;
  if (method.base_is_optional && request.base_snapshot_id.has_value() &&
      request.base_snapshot_id->empty()) {
    request.base_snapshot_id.reset();
  }
  return request;
}

absl::Status CheckRequest(const MethodContract& method, const MetadataRequest& request) {
  const RequestNames& names = method.names;
  const auto missing = [](const char* name) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is missing"));
  };
  if (method.fields.token != 0 && request.token.empty()) return missing(names.token);
  if (method.fields.name_space != 0 && request.name_space.empty()) return missing(names.name_space);
  if (request.base_snapshot_id.has_value() && request.base_snapshot_id->empty()) {
    return missing(names.base);
  }
  if (request.target_snapshot_id.empty()) return missing(names.target);
  if (request.max_results < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(names.max_results, " is negative: ", request.max_results));
  }
  if (request.starting_offset < 0) {
    if (method.unsigned_numbers) {
      return absl::OutOfRangeError(absl::StrCat(names.offset, " is greater than any capacity: ",
                                                static_cast<uint64_t>(request.starting_offset)));
    }
    return absl::OutOfRangeError(
        absl::StrCat(names.offset, " is negative: ", request.starting_offset));
  }
  return absl::OkStatus();
}

std::string EncodeRequest(const MethodContract& method, const MetadataRequest& request) {
  const RequestFields& fields = method.fields;
  // Written in the order of the contract's field numbers.
  std::vector<std::string> parts(8);
  const auto text = [&parts](uint32_t field, std::string_view value) {
    if (field != 0) wire::AppendBytesField(parts[field], field, value);
  };
  const auto number = [&parts](uint32_t field, uint64_t value) {
    if (field != 0) wire::AppendVarintField(parts[field], field, value);
  };
  text(fields.token, request.token.Reveal());
  text(fields.name_space, request.name_space);
  text(fields.volume_id, request.volume_id);
  text(fields.page_token, request.page_token);
  if (request.base_snapshot_id.has_value()) {
    text(fields.base_snapshot_id, *request.base_snapshot_id);
  }
  text(fields.target_snapshot_id, request.target_snapshot_id);
  number(fields.starting_offset, static_cast<uint64_t>(request.starting_offset));
  // Negative int32 values take ten bytes on the wire, sign-extended.
  number(fields.max_results, static_cast<uint64_t>(request.max_results));
  if (fields.secrets != 0) {
    request.secrets.ForEach([&](const std::string& key, const std::string& value) {
      std::string entry;
      wire::AppendBytesFieldAlways(entry, kMapKey, key);
      wire::AppendBytesFieldAlways(entry, kMapValue, value);
      wire::AppendBytesFieldAlways(parts[fields.secrets], fields.secrets, entry);
    });
  }
  std::string bytes;
  for (const std::string& part : parts) bytes += part;
  return bytes;
}

BlockMetadataType TypeOnWire(const Contract& contract, BlockMetadataType type) noexcept {
  if (contract.types == TypeNumbers::kFinal) return type;
  return type == BlockMetadataType::kVariableLength ? BlockMetadataType{1} : BlockMetadataType{0};
}

absl::Status TranslateType(const Contract& contract, MetadataMessage& message) {
  if (contract.types == TypeNumbers::kFinal) return absl::OkStatus();
  switch (static_cast<int32_t>(message.type)) {
    case 0:
      message.type = BlockMetadataType::kFixedLength;
      return absl::OkStatus();
    case 1:
      message.type = BlockMetadataType::kVariableLength;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("block_metadata_type ", static_cast<int32_t>(message.type),
                       " is not valid in the first revision: expected 0 or 1"));
  }
}

}  // namespace cbt::rpc
