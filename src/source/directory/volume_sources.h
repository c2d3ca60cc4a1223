// Files beside the images of a volume that say where a storage system's own knowledge is to be had.
#ifndef CBT_SOURCE_DIRECTORY_VOLUME_SOURCES_H_
#define CBT_SOURCE_DIRECTORY_VOLUME_SOURCES_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/open.h"
#include "source/directory/allowed_sources.h"
#include "source/directory/snapshot_folder.h"

namespace cbt {

// The files `*.source` in a volume's folder, each a few lines of `key value`:
//
//   # what changed on Monday
//   base sunday
//   target monday
//   from thin-delta
//   capacity 64G
//   address .sun-mon.xml
//
// `base` is missing where the source tells what is allocated. `address` is a file in the volume's
// folder or, where the rules list it, an absolute path or an nbd:// address; what is opened is a
// regular file or a block device. `from`, `capacity` and `base-capacity` are as for `cbt delta`. No
// key comes twice, and every line has an end: see ForEachLine().
class VolumeSources {
 public:
  static constexpr std::string_view kExtension = ".source";

  // What all sources of a directory keep to.
  struct Rules {
    AllowedSources allowed;
    std::chrono::milliseconds time;  // see SourceOptions::time_limit
  };

  // Reads the `*.source` files in `folder`. Its root and `rules` must outlive the object and its
  // cursors.
  static VolumeSources Read(const SnapshotFolder& folder, const Rules& rules);

  // What the source of these snapshots (names in the folder) says, in blocks of `block_size` bytes;
  // null when there is none. An empty base stands for none: what is allocated.
  // Errors: FAILED_PRECONDITION when what would tell is not to be used, or is not the only one of
  //         its kind; NBD servers that can't be reached are UNAVAILABLE, what takes too long is
  //         DEADLINE_EXCEEDED.
  // `version`: takes a text that is another one when the entry, or a file that it was read from,
  // is; of a server nothing is known.
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Open(const std::string& base,
                                                     const std::string& target, uint64_t block_size,
                                                     std::string* version = nullptr) const;

  // True when a source speaks of the snapshot.
  bool Knows(const std::string& name) const;

  // What could not be read, FAILED_PRECONDITION; OK when everything could. It may have been what
  // would have told.
  const absl::Status& damage() const noexcept { return damage_; }

 private:
  struct Entry {
    std::string file;
    std::string base;
    std::string target;
    std::string address;
    std::string text;  // of the entry's file
    SourceOptions options;
  };

  VolumeSources(int root, std::string volume, const Rules& rules)
      : root_(root), volume_(std::move(volume)), rules_(&rules) {}
  absl::StatusOr<Entry> Parse(const std::string& file, std::string_view text) const;
  // -1 and errno when it can't be opened.
  int Descriptor(const std::string& path) const;
  absl::StatusOr<int> OpenFile(const std::string& path) const;
  // Refuses an NBD server, and key files for it, that the rules don't list.
  // Errors: FAILED_PRECONDITION.
  absl::Status CheckReach(const Entry& entry) const;
  // Refuses a list that names another snapshot of this volume than its entry does, and a map of
  // another volume: storage may have names of its own, but not these for others.
  // Errors: FAILED_PRECONDITION.
  absl::Status CheckNames(const Entry& entry, const OpenedSource& source) const;

  int root_;
  std::string volume_;
  const Rules* rules_;
  std::vector<Entry> entries_;
  std::set<std::string> files_;  // the names of the others in the folder, without extension
  absl::Status damage_;
};

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_VOLUME_SOURCES_H_
