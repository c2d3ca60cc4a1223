// The arguments of `cbt-driver driver`.
#ifndef CBT_PROGRAMS_DRIVER_PROGRAM_DRIVER_H_
#define CBT_PROGRAMS_DRIVER_PROGRAM_DRIVER_H_

#include <string>

#include "programs/cbt/options/serving.h"
#include "programs/driver/options.h"

namespace cbt::cli {

struct DriverArguments {
  driver::DriverOptions driver;
  std::string volume_host = "own";
  bool events = false;
  std::string kubeconfig;
  std::string nbdkit_plugin = "cbt";  // of a volume host that the driver starts
  ServingArguments serving;           // those that concern the process
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_DRIVER_PROGRAM_DRIVER_H_
