#include "programs/driver/identity_service.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "cbt/version.h"

namespace cbt::driver {

absl::Status CheckDriverName(const std::string& name) {
  constexpr size_t kMaxBytes = 63;
  const auto is_letter = [](char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); };
  const bool valid = !name.empty() && name.size() <= kMaxBytes && is_letter(name.front()) &&
                     is_letter(name.back()) && std::all_of(name.begin(), name.end(), [](char c) {
                       return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                              c == '.' || c == '_';
                     });
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "driver name: expected 1 to 63 letters, digits, '-', '.' and '_', with a letter at both "
      "ends");
}

grpc::Status IdentityService::GetPluginInfo(grpc::ServerContext*,
                                            const csi::v1::GetPluginInfoRequest*,
                                            csi::v1::GetPluginInfoResponse* response) {
  return calls_.Run("/csi.v1.Identity/GetPluginInfo", [&] {
    response->set_name(name_);
    response->set_vendor_version(std::string(kVersion));
    // The sidecar publishes it: marks are bases.
    if (marks_) (*response->mutable_manifest())["cbt.requireBaseSnapshotForDelta"] = "false";
    return absl::OkStatus();
  });
}

grpc::Status IdentityService::GetPluginCapabilities(
    grpc::ServerContext*, const csi::v1::GetPluginCapabilitiesRequest*,
    csi::v1::GetPluginCapabilitiesResponse* response) {
  return calls_.Run("/csi.v1.Identity/GetPluginCapabilities", [&] {
    using Capability = csi::v1::PluginCapability;
    for (const auto type :
         {Capability::Service::CONTROLLER_SERVICE, Capability::Service::GROUP_CONTROLLER_SERVICE,
          Capability::Service::VOLUME_ACCESSIBILITY_CONSTRAINTS,
          Capability::Service::SNAPSHOT_METADATA_SERVICE,
          Capability::Service::SNAPSHOT_ACCESSIBILITY_CONSTRAINTS}) {
      response->add_capabilities()->mutable_service()->set_type(type);
    }
    response->add_capabilities()->mutable_volume_expansion()->set_type(
        device_ == DeviceKind::kLoop ? Capability::VolumeExpansion::ONLINE
                                     : Capability::VolumeExpansion::OFFLINE);
    return absl::OkStatus();
  });
}

grpc::Status IdentityService::Probe(grpc::ServerContext*, const csi::v1::ProbeRequest*,
                                    csi::v1::ProbeResponse* response) {
  return calls_.Run("/csi.v1.Identity/Probe", [&] {
    response->mutable_ready()->set_value(ready_());
    return absl::OkStatus();
  });
}

}  // namespace cbt::driver
