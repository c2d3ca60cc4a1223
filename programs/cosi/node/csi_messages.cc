#include "programs/cosi/node/csi_messages.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::kube::cosi {
namespace {

using wire::ProtoReader;
using wire::WireType;

// NodeServiceCapability.RPC.Type
constexpr uint64_t kVolumeMountGroup = 6;

absl::Status Malformed() { return absl::InvalidArgumentError("the request can't be read"); }

bool ReadEntry(std::span<const uint8_t> bytes, std::map<std::string, std::string>& to) {
  std::string key;
  std::string value;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) key = reader.text();
    if (reader.Is(2, WireType::kBytes)) value = reader.text();
  }
  if (!reader.status().ok() || !IsUtf8(key) || !IsUtf8(value)) return false;
  to[std::move(key)] = std::move(value);
  return true;
}

// VolumeCapability { oneof { block = 1; mount = 2 { fs_type 1, mount_flags 2, mount_group 3 } } }
bool ReadCapability(std::span<const uint8_t> bytes, PublishRequest& to) {
  to.has_capability = true;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (!reader.Is(2, WireType::kBytes)) continue;
    to.is_mount = true;
    ProtoReader mount(reader.bytes());
    while (mount.Next()) {
      if (mount.Is(3, WireType::kBytes)) to.mount_group = mount.text();
    }
    if (!mount.status().ok()) return false;
  }
  return reader.status().ok();
}

absl::Status Require(const char* field, const std::string& value) {
  if (value.empty()) return absl::InvalidArgumentError(absl::StrCat(field, ": is missing"));
  if (!IsUtf8(value)) return Malformed();
  return absl::OkStatus();
}

}  // namespace

const std::string& PublishRequest::At(const std::string& key) const {
  static const std::string kNothing;
  const auto found = context.find(key);
  return found == context.end() ? kNothing : found->second;
}

absl::StatusOr<PublishRequest> DecodePublish(std::span<const uint8_t> request) {
  PublishRequest publish;
  bool readable = true;
  ProtoReader reader(request);
  while (readable && reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) publish.volume_id = reader.text();
    if (reader.Is(4, WireType::kBytes)) publish.target_path = reader.text();
    if (reader.Is(5, WireType::kBytes)) readable = ReadCapability(reader.bytes(), publish);
    if (reader.Is(8, WireType::kBytes)) readable = ReadEntry(reader.bytes(), publish.context);
  }
  if (!readable || !reader.status().ok()) return Malformed();
  for (absl::Status status :
       {Require("volume_id", publish.volume_id), Require("target_path", publish.target_path)}) {
    if (!status.ok()) return status;
  }
  if (!publish.has_capability) {
    return absl::InvalidArgumentError("volume_capability: is missing");
  }
  if (!publish.is_mount) {
    return absl::InvalidArgumentError("volume_capability: only mounts are served, no blocks");
  }
  return publish;
}

absl::StatusOr<UnpublishRequest> DecodeUnpublish(std::span<const uint8_t> request) {
  UnpublishRequest unpublish;
  ProtoReader reader(request);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) unpublish.volume_id = reader.text();
    if (reader.Is(2, WireType::kBytes)) unpublish.target_path = reader.text();
  }
  if (!reader.status().ok()) return Malformed();
  for (absl::Status status :
       {Require("volume_id", unpublish.volume_id), Require("target_path", unpublish.target_path)}) {
    if (!status.ok()) return status;
  }
  return unpublish;
}

std::string EncodePluginInfo(const std::string& name, const std::string& version) {
  std::string out;
  wire::AppendBytesField(out, 1, name);
  wire::AppendBytesField(out, 2, version);
  return out;
}

std::string EncodeNodeInfo(const std::string& node_id) {
  std::string out;
  wire::AppendBytesField(out, 1, node_id);
  return out;
}

std::string EncodeNodeCapabilities() {
  std::string type;
  wire::AppendVarintField(type, 1, kVolumeMountGroup);
  std::string capability;
  wire::AppendBytesField(capability, 1, type);
  std::string out;
  wire::AppendBytesField(out, 1, capability);
  return out;
}

std::string EncodeReady() {
  std::string yes;
  wire::AppendVarintField(yes, 1, 1);
  std::string out;
  wire::AppendBytesField(out, 1, yes);
  return out;
}

}  // namespace cbt::kube::cosi
