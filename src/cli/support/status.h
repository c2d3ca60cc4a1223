// Errors on their way to the user: one line on stderr and an exit status.
#ifndef CBT_CLI_SUPPORT_STATUS_H_
#define CBT_CLI_SUPPORT_STATUS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cbt::cli {

// What scripts rely on.
enum ExitStatus : int {
  kExitDone = 0,
  kExitNo = 1,       // the answer is "no"
  kExitUsage = 2,    // wrong usage or bad input
  kExitFailure = 3,  // input/output or network failure
};

// The exit status that stands for a status code: what the caller can mend is kExitUsage, everything
// else kExitFailure.
int ExitStatusFor(absl::StatusCode code) noexcept;

// Prints a status as `cbt: <subcommand>: <message>` unless it is OK.
// Returns: the exit status.
int Report(std::string_view subcommand, const absl::Status& status);

// Writes `cbt: <subcommand>: <message>` to stderr as one line, whatever the message holds.
void PrintLine(std::string_view subcommand, std::string_view message);

// `text` without characters that end a line or steer a terminal; messages may quote what a server
// or a file name said.
std::string OneLine(std::string_view text);

// The message of a status as a std::string.
std::string MessageOf(const absl::Status& status);

// What errno says.
std::string ErrnoText(int error);

// UNAVAILABLE `<where>: <what errno says>`: input or output failed.
absl::Status IoError(std::string_view where, int error);

// INVALID_ARGUMENT `<where>: <why>`: the caller gave something that can't be used.
absl::Status UsageError(std::string_view where, std::string_view why);

// As IoError() for an errno of opening or creating a file, but a file that is missing, forbidden or
// of the wrong kind is the caller's mistake.
absl::Status OpenError(std::string_view where, int error);

}  // namespace cbt::cli

#endif  // CBT_CLI_SUPPORT_STATUS_H_
