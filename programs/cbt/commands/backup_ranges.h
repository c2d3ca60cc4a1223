// What `cbtctl backup create` knows about a snapshot before it reads the data: from a service, from
// a list or map of changes, or from the file system.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_BACKUP_RANGES_H_
#define CBT_PROGRAMS_CBT_COMMANDS_BACKUP_RANGES_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cbt/source/image.h"
#include "programs/backup/create.h"
#include "programs/cbt/commands/map_input.h"
#include "programs/cbt/options/remote_options.h"

namespace cbt::cli {

struct RangeArguments {
  RemoteArguments remote;
  bool prove = false;
  std::vector<std::string> delta;  // a map or list, or the images of base and target
  std::string delta_base;          // handle
  MapInput map_input;
  std::optional<std::string> handle;  // of the snapshot
};

// `arguments` must outlive the parsing.
void AddRangeOptions(CLI::App& subcommand, RangeArguments& arguments);

struct Ranges {
  std::unique_ptr<backup::RangeSource> source;
  // The snapshot's handle, as given or as the input says it.
  std::optional<std::string> handle;
};

// Reads what is given by name, so that a missing file is an error and no step down. `image`: the
// snapshot's data.
absl::StatusOr<Ranges> OpenRanges(const RangeArguments& arguments,
                                  const std::shared_ptr<const Image>& image);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_BACKUP_RANGES_H_
