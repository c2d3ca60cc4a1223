// Options for change-map files as output, and writing a cursor to one.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_MAP_OUTPUT_H_
#define CBT_PROGRAMS_CBT_COMMANDS_MAP_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/source/open.h"
#include "programs/cbt/support/files.h"

namespace cbt::cli {

// Names from the command line, which override those of the input.
struct MapNames {
  std::optional<std::string> volume;
  std::optional<std::string> base;
  std::optional<std::string> target;

  // `known`, overridden by the given names. A map with a base is read as what changed, a map
  // without one as what is allocated; `what` says which it really is.
  // Errors: INVALID_ARGUMENT if the names would say the other.
  absl::StatusOr<ChangeMapIdentity> Over(ChangeMapIdentity known, SourcePurpose what) const;
};

struct MapOutput {
  std::string path;  // empty: print text
  MapNames names;

  bool wanted() const noexcept { return !path.empty(); }
};

// Adds `--volume-name`, `--base-name` and `--target-name`; both must outlive the parsing.
void AddNameOptions(CLI::App& subcommand, MapNames& names);

// Adds `--output` and the names to a subcommand that has the stream options. Options that format
// text, or that would make the map incomplete, exclude `--output`.
void AddMapOutput(CLI::App& subcommand, MapOutput& output);

// The names that the paths of images imply: the volume is the directory, snapshots are file names
// without their last extension (unless it is digits). If the directories differ there is no volume,
// and the paths are the names. `base` may be empty.
ChangeMapIdentity IdentityOfImages(const std::string& base, const std::string& target);

// The same for snapshot ids, if they are paths.
ChangeMapIdentity IdentityOfIds(const std::string& base, const std::string& target);

// Writes a file, or stdout if `path` is "-". `inputs`: see FindOutputPlace().
// Errors: those of FindOutputPlace(); INVALID_ARGUMENT if stdout is a terminal, whose user would
//         not want these bytes; UNAVAILABLE, ReaderGone().
absl::Status WriteBytes(const std::string& path, const InputFiles& inputs,
                        std::span<const uint8_t> bytes);

// The same for a map file.
absl::Status WriteMapFile(const std::string& path, const InputFiles& inputs, const ChangeMap& map);

// Runs `cursor` to its end and writes its extents as a map in blocks of `granularity` bytes.
// `inputs`: see FindOutputPlace(). `label`: for the progress bar.
// Errors: those of WriteBytes() and of the cursor.
absl::Status WriteMap(ExtentCursor& cursor, uint64_t granularity, const ChangeMapIdentity& identity,
                      const std::string& path, const InputFiles& inputs, const std::string& label);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_MAP_OUTPUT_H_
