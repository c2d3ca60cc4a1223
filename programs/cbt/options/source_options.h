// Options that describe an input: `--from`, `--capacity` and the like.
#ifndef CBT_PROGRAMS_CBT_OPTIONS_SOURCE_OPTIONS_H_
#define CBT_PROGRAMS_CBT_OPTIONS_SOURCE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "cbt/source/open.h"

namespace cbt::cli {

// Refuses an empty argument: an unset shell variable must not look like an omitted argument.
CLI::Validator IsNotEmpty();

// Adds the option `name` for a number of bytes up to kMaxCapacity; `bytes` must outlive the
// parsing.
void AddBytesOption(CLI::App& subcommand, const std::string& name, std::optional<uint64_t>& bytes,
                    const char* what);

struct SourceInput {
  SourceSpec spec;
  std::optional<uint64_t> capacity;
  std::optional<uint64_t> base_capacity;
};

// Adds `--from` and `--capacity`, and `--base-capacity` for subcommands that report a delta;
// `input` must outlive the parsing.
void AddSourceInput(CLI::App& subcommand, SourceInput& input, bool delta);

// Bits that don't hold the size of their blocks have blocks of `block_size` bytes, if it was given
// and the format's own options don't say it.
SourceSpec WithBlockSize(SourceSpec spec, std::optional<uint64_t> block_size);

// Prints to stderr which format was detected if `spec` names none: the content that decided may
// come from the guest.
void NoteFormat(const SourceSpec& spec, const OpenedSource& source);

// The formats, one per line, for the help of a subcommand for `purpose` (any if empty).
std::string FormatsText(std::optional<SourcePurpose> purpose);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OPTIONS_SOURCE_OPTIONS_H_
