#include "programs/driver/health.h"

namespace cbt::driver {
namespace {

const char* ReasonOf(VolumeHealth::State state) noexcept {
  switch (state) {
    case VolumeHealth::State::kFailed:
      return "DeviceFailed";
    case VolumeHealth::State::kUnknown:
      return "VolumeHostNotRunning";
    default:
      return "ServerNotRunning";
  }
}

}  // namespace

void DescribeHealth(csi::v1::VolumeHealth& message, const std::string& volume,
                    const std::optional<VolumeHealth>& health) {
  message.set_volume_id(volume);
  if (!health.has_value() || health->serving()) return;
  auto& entry = *message.add_health_statuses();
  entry.set_status(csi::v1::INACCESSIBLE);
  entry.set_reason(ReasonOf(health->state));
  entry.set_message(health->error);
}

}  // namespace cbt::driver
