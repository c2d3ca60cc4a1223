// The arguments of `cbt-driver volume-host`.
#ifndef CBT_CLI_COMMANDS_VOLUME_HOST_H_
#define CBT_CLI_COMMANDS_VOLUME_HOST_H_

#include "cli/options/serving.h"
#include "driver/host/host_server.h"

namespace cbt::cli {

struct VolumeHostArguments {
  driver::HostOptions host;
  ServingArguments serving;  // those that concern the process
  // Started by a driver: writes nowhere, and ends when it has nothing to do.
  bool background = false;
};

}  // namespace cbt::cli

#endif  // CBT_CLI_COMMANDS_VOLUME_HOST_H_
