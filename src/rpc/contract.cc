#include "rpc/contract.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {
namespace {

using wire::ProtoReader;
using wire::WireType;

// Map entries are messages with these two fields.
constexpr uint32_t kMapKey = 1;
constexpr uint32_t kMapValue = 2;

std::string_view AsText(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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
    if (!wire::IsValidUtf8(reader.bytes())) return NotUtf8(reader.content_position());
    (is_key ? key : value) = AsText(reader.bytes());
  }
  if (absl::Status status = reader.status(); !status.ok()) return status;
  secrets.Set(std::string(key), value);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MetadataRequest> DecodeRequest(const MethodContract& method,
                                              std::span<const uint8_t> bytes) {
  const RequestFields& fields = method.fields;
  MetadataRequest request;
  if (fields.is_delta()) request.base_snapshot_id.emplace();
  ProtoReader reader(bytes);
  while (reader.Next()) {
    // Field numbers are positive, so fields that this request lacks never match.
    const uint32_t field = reader.field();
    if (reader.wire_type() == WireType::kVarint) {
      if (field == fields.starting_offset) {
        request.starting_offset = static_cast<int64_t>(reader.varint());
      } else if (field == fields.max_results) {
        request.max_results = static_cast<int32_t>(static_cast<uint32_t>(reader.varint()));
      }
    } else if (reader.wire_type() == WireType::kBytes) {
      if (field == fields.target_snapshot_id || field == fields.base_snapshot_id) {
        if (!wire::IsValidUtf8(reader.bytes())) return NotUtf8(reader.content_position());
        const std::string_view id = AsText(reader.bytes());
        if (field == fields.target_snapshot_id) {
          request.target_snapshot_id = id;
        } else {
          request.base_snapshot_id = id;
        }
      } else if (field == fields.secrets) {
        if (absl::Status status =
                DecodeSecret(reader.bytes(), reader.content_position(), request.secrets);
            !status.ok()) {
          return status;
        }
      }
    }
  }
  if (absl::Status status = reader.status(); !status.ok()) return status;
  return request;
}

absl::Status CheckRequest(const MethodContract& method, const MetadataRequest& request) {
  if (request.base_snapshot_id.has_value() && request.base_snapshot_id->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(method.base_name, " is missing"));
  }
  if (request.target_snapshot_id.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(method.target_name, " is missing"));
  }
  if (request.max_results < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_results is negative: ", request.max_results));
  }
  if (request.starting_offset < 0) {
    return absl::OutOfRangeError(
        absl::StrCat("starting_offset is negative: ", request.starting_offset));
  }
  return absl::OkStatus();
}

std::string EncodeRequest(const MethodContract& method, const std::string* base_snapshot_id,
                          const std::string& target_snapshot_id, uint64_t starting_offset,
                          int32_t max_results, const std::map<std::string, std::string>& secrets) {
  // Fields of all contracts stand in this order of their numbers.
  const RequestFields& fields = method.fields;
  std::string bytes;
  if (base_snapshot_id != nullptr) {
    wire::AppendBytesField(bytes, fields.base_snapshot_id, *base_snapshot_id);
  }
  wire::AppendBytesField(bytes, fields.target_snapshot_id, target_snapshot_id);
  wire::AppendVarintField(bytes, fields.starting_offset, starting_offset);
  // Negative int32 values take ten bytes on the wire, sign-extended.
  wire::AppendVarintField(bytes, fields.max_results,
                          static_cast<uint64_t>(static_cast<int64_t>(max_results)));
  for (const auto& [key, value] : secrets) {
    std::string entry;
    wire::AppendBytesFieldAlways(entry, kMapKey, key);
    wire::AppendBytesFieldAlways(entry, kMapValue, value);
    wire::AppendBytesFieldAlways(bytes, fields.secrets, entry);
  }
  return bytes;
}

}  // namespace cbt::rpc
