// `cbt-driver`: the command line of `cbt`, with a driver.

#include "cli/command.h"

int main(int argc, char** argv) { return cbt::cli::Run(argc, argv, &cbt::cli::RunDriver); }
