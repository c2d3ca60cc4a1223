// The directory of a volume, listed once for a request.
#ifndef CBT_SOURCE_DIRECTORY_SNAPSHOT_DIRECTORY_H_
#define CBT_SOURCE_DIRECTORY_SNAPSHOT_DIRECTORY_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace cbt {

// The names in a volume's directory at one moment. Images, maps, chains and sources of a request
// are all looked up in the same listing.
class SnapshotDirectory {
 public:
  // Lists the directory `volume` ("" for the root itself) below the directory `root`, which must
  // stay open as long as the object.
  static SnapshotDirectory Read(int root, std::string volume);

  int root() const noexcept { return root_; }
  const std::string& volume() const noexcept { return volume_; }

  // The names, sorted, without those that begin with a dot. Empty if there is no such directory
  // below the root, or if it can't be listed in full.
  const std::vector<std::string>& names() const noexcept { return names_; }

  // OK unless the directory can't be listed although it may exist; as FileError().
  const absl::Status& status() const noexcept { return status_; }

  // The path of `name` from the root.
  std::string PathOf(std::string_view name) const;

  // Opens `name`; see OpenBeneath().
  int Open(std::string_view name, int flags) const;

 private:
  SnapshotDirectory(int root, std::string volume) : root_(root), volume_(std::move(volume)) {}

  int root_;
  std::string volume_;
  std::vector<std::string> names_;
  absl::Status status_;
};

// Whether a listed file that failed to open may exist all the same, by the errno of OpenBeneath().
// False if it has been removed, or is a link that leads out of the root.
bool MayBeThere(int error) noexcept;

// The error for a file in a snapshot's directory that can't be used: FAILED_PRECONDITION, or the
// original code if the error may be transient.
absl::Status AsDamage(const absl::Status& status);

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_SNAPSHOT_DIRECTORY_H_
