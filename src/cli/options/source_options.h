// The options that say what an input is: `--from`, `--capacity` and the like.
#ifndef CBT_CLI_OPTIONS_SOURCE_OPTIONS_H_
#define CBT_CLI_OPTIONS_SOURCE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "cbt/source/open.h"

namespace cbt::cli {

// Refuses an empty argument: a shell's variable that is not set must not be taken for one that was
// left out.
CLI::Validator IsNotEmpty();

struct SourceInput {
  SourceSpec spec;
  std::optional<uint64_t> capacity;
  std::optional<uint64_t> base_capacity;
};

// Adds `--from` and `--capacity`, and `--base-capacity` for subcommands that tell a delta; `input`
// must outlive the parsing.
void AddSourceInput(CLI::App& subcommand, SourceInput& input, bool delta);

// Says on stderr which format `source` was taken for where `spec` names none: by content, which may
// be that of a volume to which it was written.
void NoteFormat(const SourceSpec& spec, const OpenedSource& source);

// The formats, one a line, for the help of a subcommand that is about `purpose` (any if none).
std::string FormatsText(std::optional<SourcePurpose> purpose);

}  // namespace cbt::cli

#endif  // CBT_CLI_OPTIONS_SOURCE_OPTIONS_H_
