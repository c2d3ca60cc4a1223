#include "programs/cluster/plugin_identity.h"

#include <cstdint>
#include <span>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "net/address.h"
#include "rpc/client/connect.h"
#include "rpc/client/unary_call.h"
#include "wire/proto_reader.h"

namespace cbt::kube::cluster {
namespace {

using wire::ProtoReader;
using wire::WireType;

// PluginCapability.Service.Type
constexpr uint64_t kSnapshotMetadataService = 4;

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

absl::Status Unreadable(const char* method) {
  return absl::InternalError(absl::StrCat(method, ": the plugin's answer can't be read"));
}

// PluginCapability { oneof type { Service service = 1; } }, Service { Type type = 1; }
bool IsSnapshotMetadata(std::span<const uint8_t> capability, bool& readable) {
  bool found = false;
  ProtoReader reader(capability);
  while (reader.Next()) {
    if (!reader.Is(1, WireType::kBytes)) continue;
    ProtoReader service(reader.bytes());
    while (service.Next()) {
      if (service.Is(1, WireType::kVarint)) found = service.varint() == kSnapshotMetadataService;
    }
    if (!service.status().ok()) readable = false;
  }
  if (!reader.status().ok()) readable = false;
  return found;
}

// An entry of the manifest: key = 1, value = 2.
bool SaysNoBase(std::span<const uint8_t> entry, bool& readable) {
  std::string key;
  std::string value;
  ProtoReader reader(entry);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) key = reader.text();
    if (reader.Is(2, WireType::kBytes)) value = reader.text();
  }
  if (!reader.status().ok()) readable = false;
  return key == kRequiresBaseKey && value == "false";
}

}  // namespace

absl::StatusOr<std::unique_ptr<PluginIdentity>> PluginIdentity::Create(
    const std::string& address, const rpc::ClientTlsOptions& tls, std::chrono::milliseconds timeout,
    OnCall on_call) {
  const absl::StatusOr<net::Address> parsed = net::ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<std::shared_ptr<rpc::Channel>> channel = rpc::ConnectForGood(*parsed, tls);
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<PluginIdentity>(
      new PluginIdentity(*std::move(channel), timeout, std::move(on_call)));
}

PluginIdentity::PluginIdentity(std::shared_ptr<rpc::Channel> channel,
                               std::chrono::milliseconds timeout, OnCall on_call)
    : channel_(std::move(channel)), timeout_(timeout), on_call_(std::move(on_call)) {}

absl::StatusOr<std::string> PluginIdentity::Call(const char* method, const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  rpc::UnaryCall call(*channel_, std::chrono::system_clock::now() + timeout_);
  const absl::StatusOr<absl::Cord> answer = call.Run(method, "", stop);
  if (on_call_) on_call_(method, answer.status().code(), std::chrono::steady_clock::now() - begin);
  if (!answer.ok()) return answer.status();
  return std::string(*answer);
}

absl::StatusOr<PluginInfo> PluginIdentity::Info(const std::stop_token& stop) {
  constexpr char kMethod[] = "/csi.v1.Identity/GetPluginInfo";
  const absl::StatusOr<std::string> answer = Call(kMethod, stop);
  if (!answer.ok()) return answer.status();
  PluginInfo info;
  bool readable = true;
  ProtoReader reader(BytesOf(*answer));
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) info.name = reader.text();
    if (reader.Is(3, WireType::kBytes) && SaysNoBase(reader.bytes(), readable)) {
      info.requires_base = false;
    }
  }
  if (!reader.status().ok() || !readable || !IsUtf8(info.name)) return Unreadable(kMethod);
  return info;
}

absl::StatusOr<bool> PluginIdentity::Ready(const std::stop_token& stop) {
  constexpr char kMethod[] = "/csi.v1.Identity/Probe";
  const absl::StatusOr<std::string> answer = Call(kMethod, stop);
  if (!answer.ok()) return answer.status();
  // A plugin that says nothing is ready; one that sends an empty BoolValue is not.
  bool ready = true;
  ProtoReader reader(BytesOf(*answer));
  while (reader.Next()) {
    if (!reader.Is(1, WireType::kBytes)) continue;
    ready = false;
    ProtoReader value(reader.bytes());
    while (value.Next()) {
      if (value.Is(1, WireType::kVarint)) ready = value.varint() != 0;
    }
    if (!value.status().ok()) return Unreadable(kMethod);
  }
  if (!reader.status().ok()) return Unreadable(kMethod);
  return ready;
}

absl::StatusOr<bool> PluginIdentity::HasSnapshotMetadata(const std::stop_token& stop) {
  constexpr char kMethod[] = "/csi.v1.Identity/GetPluginCapabilities";
  const absl::StatusOr<std::string> answer = Call(kMethod, stop);
  if (!answer.ok()) return answer.status();
  bool found = false;
  bool readable = true;
  ProtoReader reader(BytesOf(*answer));
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes) && IsSnapshotMetadata(reader.bytes(), readable)) {
      found = true;
    }
  }
  if (!reader.status().ok() || !readable) return Unreadable(kMethod);
  return found;
}

}  // namespace cbt::kube::cluster
