// Messages for the user: one line on stderr, an exit status, and how much is said besides errors.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_STATUS_H_
#define CBT_PROGRAMS_CBT_SUPPORT_STATUS_H_

#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace cbt::cli {

// Scripts rely on these values.
enum ExitStatus : int {
  kExitDone = 0,
  kExitNo = 1,       // the answer is "no"
  kExitUsage = 2,    // wrong usage or bad input
  kExitFailure = 3,  // input/output or network failure
};

// Where what was read comes from. Damaged or unknown content is bad input in a file, and a failure
// of the network if a server sent it.
enum class Origin : unsigned char { kInput, kServer };

// The exit status for a status code: kExitUsage if the caller can fix it, else kExitFailure.
int ExitStatusFor(absl::StatusCode code, Origin origin = Origin::kInput) noexcept;

// The name of this program, with which every line that it prints begins: "cbtctl" until it is set.
// Safe in a signal handler.
std::string_view ProgramName() noexcept;
// `name`: a literal. Before any thread starts.
void SetProgramName(std::string_view name) noexcept;

// Prints a status as `cbt: <subcommand>: <message>` unless it is OK, or that of ReaderGone().
// Returns: the exit status.
int Report(std::string_view subcommand, const absl::Status& status, Origin origin = Origin::kInput);

// The status of output whose reader has closed the pipe (`| head`): a reason to stop, but neither a
// failure nor worth a message.
absl::Status ReaderGone(std::string_view where);
bool IsReaderGone(const absl::Status& status);

// Writes `cbt: <subcommand>: <message>` to stderr as one line, whatever the message holds.
void PrintLine(std::string_view subcommand, std::string_view message);

// `text` without characters that end a line or control a terminal; messages may quote a server or a
// file name.
std::string OneLine(std::string_view text);

// The message of a status as a std::string.
std::string MessageOf(const absl::Status& status);

// UNAVAILABLE `<where>: <errno message>`: input or output failed.
absl::Status IoError(std::string_view where, int error);

// INVALID_ARGUMENT `<where>: <why>`: the caller passed something unusable.
absl::Status UsageError(std::string_view where, std::string_view why);

// As IoError() for an errno of opening or creating a file, but a missing, forbidden or unsuitable
// file is the caller's mistake.
absl::Status OpenError(std::string_view where, int error);

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

#endif  // CBT_PROGRAMS_CBT_SUPPORT_STATUS_H_
