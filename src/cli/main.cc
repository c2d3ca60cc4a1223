#include "cli/command.h"

int main(int argc, char** argv) { return cbt::cli::Run(argc, argv); }
