// Files next to the images of a volume that name other sources of change metadata.
#ifndef CBT_SOURCE_DIRECTORY_VOLUME_SOURCES_H_
#define CBT_SOURCE_DIRECTORY_VOLUME_SOURCES_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "source/directory/allowed_sources.h"
#include "source/directory/snapshot_directory.h"
#include "source/input/file_version.h"

namespace cbt {

// The files `*.source` in a volume's directory, each a few lines of `key value`:
//
//   # what changed on Monday
//   base sunday
//   target monday
//   from thin-delta
//   capacity 64G
//   address .sun-mon.xml
//
// `base` is missing if the source reports what is allocated. `address` is a file in the volume's
// directory or, if the rules list it, an absolute path or an nbd:// address; only regular files and
// block devices are opened. `from`, `capacity` and `base-capacity` are as for `cbtctl delta`. Each
// key may be given once, and every line must be terminated: see ForEachLine().
class VolumeSources {
 public:
  static constexpr std::string_view kExtension = ".source";

  // Of the map that a list, or a bitmap that is read once, becomes; each stream has its own.
  static constexpr uint64_t kMaxOwnMapBytes = 256 * kMiB;

  // Limits for all sources of a directory.
  struct Rules {
    AllowedSources allowed;
    std::chrono::milliseconds time;  // see SourceOptions::time_limit
  };

  // Reads the `*.source` files in `directory`. Its root and `rules` must outlive the object and its
  // cursors.
  static VolumeSources Read(const SnapshotDirectory& directory, const Rules& rules);

  // What the source for these snapshots (names in the directory) reports, in blocks of `block_size`
  // bytes; null if missing. An empty base asks for what is allocated.
  // Errors: FAILED_PRECONDITION if the source can't be used, or if there are several;
  //         RESOURCE_EXHAUSTED if its map takes more than kMaxOwnMapBytes; UNAVAILABLE
  //         if an NBD server can't be reached, DEADLINE_EXCEEDED if the source takes too long,
  //         CANCELLED after `stop` was requested, which the cursor heeds too.
  // `version`: receives that of the entry and of the files that it was read from. Of an NBD server
  // and of block devices only the place is known.
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Open(const std::string& base,
                                                     const std::string& target, uint64_t block_size,
                                                     DataVersion* version = nullptr,
                                                     const std::stop_token& stop = {}) const;

  // True if a source names the snapshot.
  bool Knows(const std::string& name) const;

  // FAILED_PRECONDITION if something could not be read, which may have held the answer; else OK.
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
  // Returns -1 and sets errno on failure.
  int Descriptor(const std::string& path) const;
  absl::StatusOr<int> OpenFile(const std::string& path) const;
  // Refuses an NBD server, and its key files, unless the rules list them.
  // Errors: FAILED_PRECONDITION.
  absl::Status CheckReach(const Entry& entry) const;
  // Refuses a list that names another snapshot of this volume than its entry does, and a map of
  // another volume: storage may use names of its own, but not these for other snapshots.
  // Errors: FAILED_PRECONDITION.
  absl::Status CheckNames(const Entry& entry, const OpenedSource& source) const;

  int root_;
  std::string volume_;
  const Rules* rules_;
  std::vector<Entry> entries_;
  // The other names in the directory, without extension; none where there is no entry.
  std::set<std::string> files_;
  absl::Status damage_;
};

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_VOLUME_SOURCES_H_
