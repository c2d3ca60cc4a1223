#include "programs/cbt/command.h"

int main(int argc, char** argv) {
  const auto start = [argv](const auto&) { return cbt::cli::StartDriverProgram(argv); };
  return cbt::cli::Run(argc, argv, {.driver = start, .volume_host = start});
}
