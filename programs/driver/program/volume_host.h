// The arguments of `cbt-driver volume-host`.
#ifndef CBT_PROGRAMS_DRIVER_PROGRAM_VOLUME_HOST_H_
#define CBT_PROGRAMS_DRIVER_PROGRAM_VOLUME_HOST_H_

#include "programs/cbt/options/serving.h"
#include "programs/driver/host/host_server.h"

namespace cbt::cli {

struct VolumeHostArguments {
  driver::HostOptions host;
  ServingArguments serving;  // those that concern the process
  // Started by a driver: writes nowhere, and ends when it has nothing to do.
  bool background = false;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_DRIVER_PROGRAM_VOLUME_HOST_H_
