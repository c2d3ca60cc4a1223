// What the controller is configured with.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_OPTIONS_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_OPTIONS_H_

#include <chrono>
#include <cstddef>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "programs/cluster/component.h"

namespace cbt::kube::cosi {

struct ControllerOptions {
  Config cluster = {};
  ClientOptions client = {.qps = 300, .burst = 600};
  // Objects that are worked on at once.
  size_t threads = 8;
  // How long a forced deletion waits for the driver to revoke an access.
  std::chrono::milliseconds revoke_time = std::chrono::minutes(1);
  // How often finalizers of Pods that are gone are looked for.
  std::chrono::milliseconds sweep_time = std::chrono::minutes(1);

  cluster::ComponentOptions component = {};
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_OPTIONS_H_
