// Change maps from map files of any format, and from any other source.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_MAP_INPUT_H_
#define CBT_PROGRAMS_CBT_COMMANDS_MAP_INPUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "programs/cbt/commands/map_output.h"
#include "programs/cbt/options/source_options.h"
#include "programs/cbt/support/files.h"

namespace cbt::cli {

struct MapInput {
  // If no format is given, the content decides; unrecognized content counts as 64-bit roaring
  // bytes, or as text.
  SourceInput source;
  std::optional<SourcePurpose> purpose;  // for lists that don't say it
  std::optional<uint64_t> block_size;
  // The capacity and the block size of roaring bytes may be assumed if they are not given: the end
  // of the last block, and 4096. For what is only looked at; a map would claim that nothing else
  // has changed.
  bool may_assume = false;
};

// Adds `--from`, `--capacity`, `--base-capacity`, `--as` and `--block-size`; `input` must outlive
// the parsing.
void AddMapInput(CLI::App& subcommand, MapInput& input);

// A map and its purpose, which bitmaps don't say.
struct AnyMap {
  ChangeMap map;
  std::optional<SourcePurpose> what;
  InputFiles files = {};  // that were read
  bool assumed = false;   // see MapInput::may_assume

  // The map's names with those that were given, see MapNames::Over().
  // Errors: INVALID_ARGUMENT for one whose purpose is unknown, which names alone show then.
  absl::StatusOr<ChangeMapIdentity> Named(const MapNames& names) const;
};

// Reads and checks the file, or opens the source, at `path`.
// Errors: those of files; INVALID_ARGUMENT if the content has no known format or not the given one,
//         DATA_LOSS if it is damaged.
absl::StatusOr<AnyMap> ReadAnyMap(const std::string& path, const MapInput& input);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_MAP_INPUT_H_
