// `cbt-driver`: a CSI driver and what keeps its volumes attached. The only program with gRPC's
// library and the generated classes of CSI.

#include "programs/driver/program/commands.h"

int main(int argc, char** argv) {
  using namespace cbt::cli;  // NOLINT(google-build-using-namespace): as in main.cc
  return Run(
      argc, argv,
      {.name = "cbt-driver",
       .description = "Changed-block tracking: a CSI driver whose snapshots know their changes",
       .commands = {{"Servers", {AddDriver, AddVolumeHost}}}});
}
