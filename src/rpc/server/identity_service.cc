#include "rpc/server/identity_service.h"

#include <cstdint>
#include <span>
#include <utility>

#include "rpc/contract/identity.h"

namespace cbt::rpc {
namespace {

// Requests have no fields; the answer is always the same.
IdentityAndHealthCalls::Answer Constant(std::string answer) {
  return [answer =
              std::move(answer)](std::span<const uint8_t> request) -> absl::StatusOr<std::string> {
    if (absl::Status status = CheckIdentityRequest(request); !status.ok()) return status;
    return answer;
  };
}

}  // namespace

IdentityService::IdentityService(std::string_view plugin_name, std::string_view vendor_version,
                                 IdentityAndHealthCalls& calls)
    : info_(Constant(PluginInfo(plugin_name, vendor_version))),
      capabilities_(Constant(PluginCapabilities())),
      ready_(Constant(PluginReady())) {
  const auto add = [&](const char* path, const IdentityAndHealthCalls::Answer& answer) {
    AddMethod(path, [&calls, &answer](ServerCall& call, const absl::Cord& request) {
      return calls.Open(call, request, answer);
    });
  };
  add(kGetPluginInfo, info_);
  add(kGetPluginCapabilities, capabilities_);
  add(kProbe, ready_);
}

}  // namespace cbt::rpc
