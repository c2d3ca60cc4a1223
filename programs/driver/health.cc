#include "programs/driver/health.h"

namespace cbt::driver {

void DescribeHealth(csi::v1::VolumeHealth& message, const std::string& volume,
                    const std::optional<VolumeHealth>& health) {
  message.set_volume_id(volume);
  if (!health.has_value() || health->serving) return;
  auto& entry = *message.add_health_statuses();
  entry.set_status(csi::v1::INACCESSIBLE);
  entry.set_reason("ServerNotRunning");
  entry.set_message(health->error);
}

}  // namespace cbt::driver
