// `cbt-driver`: the command line of `cbt`, with a driver and a volume host.

#include "programs/cbt/command.h"

int main(int argc, char** argv) {
  return cbt::cli::Run(argc, argv,
                       {.driver = &cbt::cli::RunDriver, .volume_host = &cbt::cli::RunVolumeHost});
}
