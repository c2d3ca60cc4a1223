// Help texts, and suggestions for mistyped names.
#ifndef CBT_PROGRAMS_CBT_HELP_H_
#define CBT_PROGRAMS_CBT_HELP_H_

#include <span>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace cbt::cli {

// Help without the parser's own notes: which options exclude or need others belongs into the error
// message.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter();

  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
};

// The help text with lines of at most `columns` where it can be: descriptions and paragraphs are
// broken between words, examples are not.
std::string WrappedHelp(std::string_view help, size_t columns);

// The name that `word` is most likely a typing error of, or an abbreviation; empty if none is
// close.
std::string Nearest(std::string_view word, std::span<const std::string> names);

// Why arguments were not recognised by any part of `app`, with a suggestion; empty if there are
// none. `app`: the most specific subcommand that was recognised.
std::string UnknownArgument(const CLI::App& app, const std::string& argument);

// The program's name and version, the instruction-set levels of this machine, the kernels in use
// and `lines`; ends with a newline.
std::string VersionText(std::span<const std::string> lines);

// OK unless CBT_SIMD requests an unavailable level: results of other kernels would mislead anyone
// who uses it to find a fault.
// Errors: INVALID_ARGUMENT.
absl::Status CheckSimdRequest();

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_HELP_H_
