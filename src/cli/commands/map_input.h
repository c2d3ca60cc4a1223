// Change maps from map files of any format, and from any other source.
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
  // If no format is given, the content decides; unrecognized content counts as 64-bit roaring
  // bytes, or as text. For roaring bytes the capacity defaults to the end of the last block.
  SourceInput source;
  std::optional<SourcePurpose> purpose;  // for lists that don't say it
  std::optional<uint64_t> block_size;
};

// Adds `--from`, `--capacity`, `--base-capacity`, `--as` and `--block-size`; `input` must outlive
// the parsing.
void AddMapInput(CLI::App& subcommand, MapInput& input);

// A map and its purpose, which bitmaps don't say.
struct AnyMap {
  ChangeMap map;
  std::optional<SourcePurpose> what;
  InputFiles files = {};  // that were read

  // The map's names with those that were given, see MapNames::Over().
  absl::StatusOr<ChangeMapIdentity> Named(const MapNames& names) const;
};

// Reads and checks the file, or opens the source, at `path`.
// Errors: those of files; INVALID_ARGUMENT if the content has no known format or not the given one,
//         DATA_LOSS if it is damaged.
absl::StatusOr<AnyMap> ReadAnyMap(const std::string& path, const MapInput& input);

}  // namespace cbt::cli

#endif  // CBT_CLI_COMMANDS_MAP_INPUT_H_
