#include "cli/command.h"

int main(int argc, char** argv) {
  return cbt::cli::Run(argc, argv, [argv](const cbt::cli::DriverArguments&) {
    return cbt::cli::StartDriverProgram(argv);
  });
}
