// How a driver is configured.
#ifndef CBT_DRIVER_OPTIONS_H_
#define CBT_DRIVER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "cbt/rpc/telemetry.h"

namespace cbt::driver {

struct DriverOptions {
  // unix:///path of the socket. A socket that a killed driver left is replaced.
  std::string endpoint = "unix:///csi/csi.sock";
  std::string node_id;
  std::string state_folder;
  // The name of the plugin, see CheckDriverName().
  std::string driver_name = "cbt.csi.example.com";
  // The sum of the capacities of all volumes, bytes; 0: no limit.
  uint64_t capacity = 0;
  // host:port of /metrics, /healthz, /livez and /readyz; empty: none.
  std::string http_endpoint;
  // nbdkit's plugin, its name or its path.
  std::string nbdkit_plugin = "cbt";
  // Optional; must outlive the driver.
  rpc::LogSink* log = nullptr;
};

}  // namespace cbt::driver

#endif  // CBT_DRIVER_OPTIONS_H_
