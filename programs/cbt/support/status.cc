#include "programs/cbt/support/status.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <system_error>

#include "absl/strings/cord.h"
#include "base/text.h"

namespace cbt::cli {

namespace {

std::string_view program_name = "cbtctl";

constexpr const char* kReaderGone = "cbt/reader-gone";

std::string Join(std::string_view where, std::string_view why) {
  std::string text(where);
  text.append(": ").append(why);
  return text;
}

}  // namespace

std::string_view ProgramName() noexcept { return program_name; }

void SetProgramName(std::string_view name) noexcept { program_name = name; }

int ExitStatusFor(absl::StatusCode code, Origin origin) noexcept {
  switch (code) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnimplemented:
      return origin == Origin::kInput ? kExitUsage : kExitFailure;
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitUsage;
    default:
      return kExitFailure;
  }
}

int Report(std::string_view subcommand, const absl::Status& status, Origin origin) {
  if (status.ok() || IsReaderGone(status)) return kExitDone;
  std::string message = MessageOf(status);
  // A peer may send a code without a message.
  if (message.empty()) message = absl::StatusCodeToString(status.code());
  PrintLine(subcommand, message);
  return ExitStatusFor(status.code(), origin);
}

absl::Status ReaderGone(std::string_view where) {
  absl::Status status = absl::CancelledError(Join(where, "its reader has gone"));
  status.SetPayload(kReaderGone, absl::Cord());
  return status;
}

bool IsReaderGone(const absl::Status& status) { return status.GetPayload(kReaderGone).has_value(); }

void PrintLine(std::string_view subcommand, std::string_view message) {
  std::string line(program_name);
  line += ": ";
  if (!subcommand.empty()) line.append(subcommand).append(": ");
  line.append(OneLine(message)).push_back('\n');
  // One write, so that lines of several threads or processes don't mix. A failure can't be
  // reported.
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    if (byte < 0x20 || byte == 0x7f) {
      line.push_back('?');
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      // C1 control characters, as UTF-8.
      line.push_back('?');
      ++i;
    } else {
      line.push_back(text[i]);
    }
  }
  return line;
}

std::string MessageOf(const absl::Status& status) {
  const auto message = status.message();
  return {message.data(), message.size()};
}

absl::Status IoError(std::string_view where, int error) {
  return absl::UnavailableError(Join(where, ErrnoText(error)));
}

absl::Status UsageError(std::string_view where, std::string_view why) {
  return absl::InvalidArgumentError(Join(where, why));
}

absl::Status OpenError(std::string_view where, int error) {
  const std::string message = Join(where, ErrnoText(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
      return absl::InvalidArgumentError(message);
    default:
      return absl::UnavailableError(message);
  }
}

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
