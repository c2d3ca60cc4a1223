// How much the command says on stderr besides errors.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_VERBOSITY_H_
#define CBT_PROGRAMS_CBT_SUPPORT_VERBOSITY_H_

#include <string_view>

#include "CLI/CLI.hpp"

namespace cbt::cli {

struct Verbosity {
  bool quiet = false;        // no notes, no warnings, no progress bar
  bool no_progress = false;  // no progress bar
};

// That of the process. Set while the command line is parsed, before any thread starts.
Verbosity& CurrentVerbosity() noexcept;

// Adds `--quiet` and `--no-progress`.
void AddVerbosityOptions(CLI::App& app);

// PrintLine() of what is not an error, unless `--quiet` was given.
void Note(std::string_view subcommand, std::string_view message);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_VERBOSITY_H_
