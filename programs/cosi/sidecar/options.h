// What the sidecar of a COSI driver is configured with.
#ifndef CBT_PROGRAMS_COSI_SIDECAR_OPTIONS_H_
#define CBT_PROGRAMS_COSI_SIDECAR_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "programs/cluster/component.h"

namespace cbt::kube::cosi {

struct SidecarOptions {
  Config cluster = {};
  ClientOptions client = {.qps = 300, .burst = 600};
  std::string driver_address = {};  // "unix:/path"
  // Where Secrets are made. Empty: that of the configuration.
  std::string name_space = {};
  // Of each call of the driver.
  std::chrono::milliseconds call_time = std::chrono::minutes(1);
  // Calls of the driver at once, and most objects that are worked on at once.
  size_t threads = 8;

  // No lease: one named after the driver.
  cluster::ComponentOptions component = {};
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_OPTIONS_H_
