#include "programs/cbt/support/verbosity.h"

#include "programs/cbt/support/status.h"

namespace cbt::cli {

Verbosity& CurrentVerbosity() noexcept {
  static Verbosity verbosity;
  return verbosity;
}

void AddVerbosityOptions(CLI::App& app) {
  Verbosity& verbosity = CurrentVerbosity();
  app.add_flag("-q,--quiet", verbosity.quiet, "Only errors on stderr, no notes and no progress");
  app.add_flag("--no-progress", verbosity.no_progress, "No progress bar");
}

void Note(std::string_view subcommand, std::string_view message) {
  if (!CurrentVerbosity().quiet) PrintLine(subcommand, message);
}

}  // namespace cbt::cli
