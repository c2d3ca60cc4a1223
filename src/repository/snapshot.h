// Snapshots: a tree, and what is known about it.
#ifndef CBT_REPOSITORY_SNAPSHOT_H_
#define CBT_REPOSITORY_SNAPSHOT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "repository/id.h"

namespace cbt::repository {

struct Snapshot {
  Id id = {};  // the name of its file
  absl::Time time = absl::UnixEpoch();
  Id tree = {};
  std::optional<Id> parent = {};
  std::vector<std::string> paths = {};
  std::string host = {};
  std::string user = {};
  std::string program = {};
  std::vector<std::string> tags = {};

  // What follows `name` and "=" in the first such tag.
  std::optional<std::string> Tag(std::string_view name) const;
  bool HasTag(std::string_view tag) const;
};

// Errors: DATA_LOSS.
absl::StatusOr<Snapshot> DecodeSnapshot(std::string_view json);
std::string EncodeSnapshot(const Snapshot& snapshot);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_SNAPSHOT_H_
