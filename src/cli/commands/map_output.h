// Change-map files as output: the options, and the way from a cursor into a file.
#ifndef CBT_CLI_COMMANDS_MAP_OUTPUT_H_
#define CBT_CLI_COMMANDS_MAP_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/source/open.h"
#include "cli/support/input_files.h"

namespace cbt::cli {

// Names that were given in place of the ones that are known otherwise.
struct MapNames {
  std::optional<std::string> volume;
  std::optional<std::string> base;
  std::optional<std::string> target;

  // `known` with what was given in its place. Whoever reads a map takes it for one of what changed
  // when it names a base, and for one of what is allocated when it does not; `what` is the truth.
  // Errors: INVALID_ARGUMENT when the names would tell the other.
  absl::StatusOr<ChangeMapIdentity> Over(ChangeMapIdentity known, SourcePurpose what) const;
};

struct MapOutput {
  std::string path;  // empty: print text
  MapNames names;

  bool wanted() const noexcept { return !path.empty(); }
};

// Adds `--volume-name`, `--base-name` and `--target-name`; both must outlive the parsing.
void AddNameOptions(CLI::App& subcommand, MapNames& names);

// Adds `--output` and the names to a subcommand that has the stream options. What shapes text, and
// what would make an incomplete map, is refused beside it.
void AddMapOutput(CLI::App& subcommand, MapOutput& output);

// What the paths of images say: the volume is the folder, names go without the last extension
// (digits are none). Of two folders: no volume, and the paths are the names. An empty `base` is
// none.
ChangeMapIdentity IdentityOfImages(const std::string& base, const std::string& target);

// What snapshot ids say: the same, when they are paths.
ChangeMapIdentity IdentityOfIds(const std::string& base, const std::string& target);

// Runs `cursor` to its end and writes what it gives as a map in blocks of `granularity` bytes.
// `inputs`: see FindOutputPlace(). `label`: for the progress bar.
// Errors: those of FindOutputPlace() and of the cursor.
absl::Status WriteMap(ExtentCursor& cursor, uint64_t granularity, const ChangeMapIdentity& identity,
                      const std::string& path, const InputFiles& inputs, const std::string& label);

}  // namespace cbt::cli

#endif  // CBT_CLI_COMMANDS_MAP_OUTPUT_H_
