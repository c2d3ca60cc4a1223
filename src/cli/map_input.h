// Change maps from files of any format that holds one.
#ifndef CBT_CLI_MAP_INPUT_H_
#define CBT_CLI_MAP_INPUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"

namespace cbt::cli {

enum class MapFormat { kCbm, kRoaring64, kRoaring32, kBitmap };

// The name of a format as options spell it.
const char* MapFormatName(MapFormat format) noexcept;

struct MapInput {
  std::optional<MapFormat> format;  // none: by content
  // Of the volume, for formats that don't say it. A capacity that is not given is that of the last
  // block in the map.
  std::optional<uint64_t> capacity;
  std::optional<uint64_t> block_size;
};

// Adds `--from`, `--capacity` and `--block-size`; `input` must outlive the parsing.
void AddMapInput(CLI::App& subcommand, MapInput& input);

// Reads and checks the file at `path`.
// Errors: those of files; INVALID_ARGUMENT when the content is of no format or not of the one that
//         was given, DATA_LOSS when it is damaged.
absl::StatusOr<ChangeMap> ReadAnyMap(const std::string& path, const MapInput& input);

}  // namespace cbt::cli

#endif  // CBT_CLI_MAP_INPUT_H_
