// The health of volumes, as CSI has it since 1.13.
#ifndef CBT_PROGRAMS_DRIVER_HEALTH_H_
#define CBT_PROGRAMS_DRIVER_HEALTH_H_

#include <optional>
#include <string>

#include "csi.pb.h"
#include "programs/driver/host/volume_host.h"

namespace cbt::driver {

// Fills in what is wrong with the volume; nothing if it is not attached, or well.
void DescribeHealth(csi::v1::VolumeHealth& message, const std::string& volume,
                    const std::optional<VolumeHealth>& health);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HEALTH_H_
