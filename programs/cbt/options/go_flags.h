// Flags as programs written in Go take them, for commands that replace such a program.
//
//   GoFlags flags;
//   flags.Add("port", &port, "The port", "N");
//   absl::StatusOr<GoFlags::Outcome> outcome = flags.Parse(arguments);
//
// `-name` and `--name` are the same flag. A value follows after `=` or as the next argument; a flag
// that is on or off takes one only after `=`. `--` ends the flags. If a flag is given several
// times, the last one counts. Unlike in Go, an argument that is no flag is an error: Go would
// ignore it, and every flag after it.
#ifndef CBT_PROGRAMS_CBT_OPTIONS_GO_FLAGS_H_
#define CBT_PROGRAMS_CBT_OPTIONS_GO_FLAGS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::cli {

// Values as Go reads them. Errors: INVALID_ARGUMENT without a mention of the flag.
absl::StatusOr<bool> ParseGoBool(std::string_view text);
// Decimal, or with a prefix 0x, 0o, 0 or 0b; a sign and single underscores between digits.
absl::StatusOr<int64_t> ParseGoInt(std::string_view text);
absl::StatusOr<double> ParseGoFloat(std::string_view text);
// `1h15m30.5s`, units ns, us, ms, s, m and h; `0` alone has none. Rounded to milliseconds, but what
// is not zero stays so.
absl::StatusOr<std::chrono::milliseconds> ParseGoDuration(std::string_view text);

class GoFlags {
 public:
  // Takes a value. An error ends the parsing.
  using Set = std::function<absl::Status(std::string_view value)>;

  struct Flag {
    std::string name;
    std::string type;   // of the value, in the help text; empty for one that is on or off
    std::string shown;  // the default, in the help text
    std::string usage;
    Set set;
  };

  enum class Outcome : unsigned char { kRun, kHelp };

  // Targets must outlive the parsing, and hold the defaults.
  void Add(std::string name, std::string* target, std::string usage, std::string type = "string");
  void Add(std::string name, bool* target, std::string usage);
  void Add(std::string name, int64_t* target, std::string usage);
  void Add(std::string name, double* target, std::string usage);
  void Add(std::string name, std::chrono::milliseconds* target, std::string usage);
  void Add(Flag flag);

  // Errors: INVALID_ARGUMENT in Go's words.
  absl::StatusOr<Outcome> Parse(std::span<const std::string> arguments) const;

  // In the order in which they were added.
  const std::vector<Flag>& flags() const noexcept { return flags_; }

  // The flags with their defaults, sorted.
  std::string Usage() const;

 private:
  const Flag* Find(std::string_view name) const noexcept;

  std::vector<Flag> flags_;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OPTIONS_GO_FLAGS_H_
