#include "rpc/contract/identity.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {
namespace {

constexpr size_t kMaxPluginName = 63;

// PluginCapability.Service.Type
constexpr uint64_t kSnapshotMetadataService = 4;

}  // namespace

absl::Status CheckPluginName(std::string_view name) {
  bool good = !name.empty() && name.size() <= kMaxPluginName;
  char previous = '.';
  for (const char c : name) {
    const bool alnum = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (!alnum && c != '-' && c != '.') good = false;
    // Labels between dots must not be empty, or begin or end with a dash.
    if (previous == '.' && !alnum) good = false;
    if (c == '.' && previous == '-') good = false;
    previous = c;
  }
  if (previous == '.' || previous == '-') good = false;
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("plugin name: expected a domain name of 1 to ", kMaxPluginName, " characters"));
}

std::string PluginInfo(std::string_view name, std::string_view vendor_version) {
  std::string bytes;
  wire::AppendBytesField(bytes, 1, name);
  wire::AppendBytesField(bytes, 2, vendor_version);
  return bytes;
}

std::string PluginCapabilities() {
  std::string service;
  wire::AppendVarintField(service, 1, kSnapshotMetadataService);
  std::string capability;
  wire::AppendBytesFieldAlways(capability, 1, service);
  std::string bytes;
  wire::AppendBytesFieldAlways(bytes, 1, capability);
  return bytes;
}

std::string PluginReady() {
  std::string value;
  wire::AppendVarintField(value, 1, 1);  // google.protobuf.BoolValue
  std::string bytes;
  wire::AppendBytesFieldAlways(bytes, 1, value);
  return bytes;
}

absl::Status CheckIdentityRequest(std::span<const uint8_t> request) {
  wire::ProtoReader reader(request);
  while (reader.Next()) continue;
  return reader.status();
}

}  // namespace cbt::rpc
