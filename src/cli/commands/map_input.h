// Change maps from files of any format that holds one, and from any other source.
#ifndef CBT_CLI_COMMANDS_MAP_INPUT_H_
#define CBT_CLI_COMMANDS_MAP_INPUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cli/commands/map_output.h"
#include "cli/options/source_options.h"
#include "cli/support/input_files.h"

namespace cbt::cli {

struct MapInput {
  // The format, none: by content. What looks like nothing else is 64-bit roaring bytes, or text
  // that is none. A capacity that is not given is that of the last block, in roaring bytes.
  SourceInput source;
  std::optional<SourcePurpose> purpose;  // of lists that don't say it
  std::optional<uint64_t> block_size;
};

// Adds `--from`, `--capacity`, `--base-capacity`, `--as` and `--block-size`; `input` must outlive
// the parsing.
void AddMapInput(CLI::App& subcommand, MapInput& input);

// A map, and what it tells; bitmaps don't say.
struct AnyMap {
  ChangeMap map;
  std::optional<SourcePurpose> what;
  InputFiles files = {};  // that it was read from

  // The map's names with those that were given, see MapNames::Over().
  absl::StatusOr<ChangeMapIdentity> Named(const MapNames& names) const;
};

// Reads and checks the file, or opens the source, at `path`.
// Errors: those of files; INVALID_ARGUMENT when the content is of no format or not of the one that
//         was given, DATA_LOSS when it is damaged.
absl::StatusOr<AnyMap> ReadAnyMap(const std::string& path, const MapInput& input);

}  // namespace cbt::cli

#endif  // CBT_CLI_COMMANDS_MAP_INPUT_H_
