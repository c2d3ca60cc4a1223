// csi.v1.Identity: what a plugin answers about itself.
#ifndef CBT_RPC_CONTRACT_IDENTITY_H_
#define CBT_RPC_CONTRACT_IDENTITY_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cbt::rpc {

inline constexpr char kGetPluginInfo[] = "/csi.v1.Identity/GetPluginInfo";
inline constexpr char kGetPluginCapabilities[] = "/csi.v1.Identity/GetPluginCapabilities";
inline constexpr char kProbe[] = "/csi.v1.Identity/Probe";

// OK if the contract allows `name`: letters, digits, `-` and `.` in domain name notation, at most
// 63 characters, a letter or digit first and last; otherwise INVALID_ARGUMENT.
absl::Status CheckPluginName(std::string_view name);

// The encoded answers of the three methods: name and version, the capability
// SNAPSHOT_METADATA_SERVICE, and that the plugin is ready.
std::string PluginInfo(std::string_view name, std::string_view vendor_version);
std::string PluginCapabilities();
std::string PluginReady();

// OK if `request` is a message; the requests of the three methods have no fields.
// Errors: INVALID_ARGUMENT.
absl::Status CheckIdentityRequest(std::span<const uint8_t> request);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_IDENTITY_H_
