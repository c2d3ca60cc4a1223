// What `cbtctl backup create` knows about a snapshot before it reads the data: from a service, from
// a list or map of changes, or from the file system.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_BACKUP_RANGES_H_
#define CBT_PROGRAMS_CBT_COMMANDS_BACKUP_RANGES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
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

  bool given() const { return !remote.address.empty() || !delta.empty(); }
};

// `arguments` must outlive the parsing.
void AddRangeOptions(CLI::App& subcommand, RangeArguments& arguments);
// Of a snapshot that is made, from which the next backup goes on.
void AddHandleOption(CLI::App& subcommand, RangeArguments& arguments);

struct Ranges {
  std::unique_ptr<backup::RangeSource> source;
  // The snapshot's handle, as given or as the input says it.
  std::optional<std::string> handle;
};

// Where the data may hold something, as SnapshotData::Allocated() says it.
using AllocatedFunction = std::function<absl::StatusOr<std::unique_ptr<ExtentCursor>>()>;

// Reads what is given by name, so that a missing file is an error and no step down. `capacity`: of
// the data, in bytes. `name`: of the subcommand.
absl::StatusOr<Ranges> OpenRanges(const RangeArguments& arguments, uint64_t capacity,
                                  AllocatedFunction allocated, const std::string& name);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_BACKUP_RANGES_H_
