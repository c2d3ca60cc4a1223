// How a driver is configured.
#ifndef CBT_PROGRAMS_DRIVER_OPTIONS_H_
#define CBT_PROGRAMS_DRIVER_OPTIONS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cbt/rpc/telemetry.h"
#include "ops/http_page.h"
#include "programs/driver/host/volume_host.h"
#include "programs/driver/node/attachment.h"
#include "programs/driver/state/store.h"

namespace cbt::driver {

struct DriverOptions {
  // unix:///path of the socket. A socket that a killed driver left is replaced.
  std::string endpoint = "unix:///csi/csi.sock";
  // The number of a group that may connect beside the process's user; default: the process's own.
  std::optional<gid_t> socket_group;
  std::string node_id;
  std::string state_directory;
  // The name of the plugin, see CheckDriverName().
  std::string driver_name = "cbt.csi.example.com";
  // The sum of the capacities of all volumes, bytes; 0: no limit.
  uint64_t capacity = 0;
  // How many moments of deleted snapshots each volume keeps as bases of deltas.
  volume::MarkLimits marks = kDefaultMarks;
  // host:port of /metrics, /healthz, /livez and /readyz; empty: none.
  std::string http_endpoint;
  ops::PageAccess page_access = {};
  // What volumes are attached with.
  DeviceKind device = DeviceKind::kLoop;
  // The program and arguments of a volume host to start where none has the state directory; empty:
  // somebody else starts it.
  std::vector<std::string> volume_host;
  // Optional; see HostClientOptions::changed.
  std::function<void(const std::string& volume, const VolumeHealth& health)> changed;
  // Optional; must outlive the driver.
  rpc::LogSink* log = nullptr;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_OPTIONS_H_
