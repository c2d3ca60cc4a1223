// The map files that requests read, opened once for all that read the same one.
#ifndef CBT_SOURCE_DIRECTORY_OPEN_MAPS_H_
#define CBT_SOURCE_DIRECTORY_OPEN_MAPS_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "map/map_file.h"

namespace cbt {

// A thousand streams of one snapshot share a descriptor, a mapping and the checks of its contents.
// Nothing is kept open for requests to come: a removed file takes no space once its last stream has
// ended.
//
// Thread safe. Time and memory are linear in the number of open maps.
class OpenMaps {
 public:
  using Clock = std::chrono::steady_clock;

  // A map that was opened longer than `shared_for` ago is opened and checked again: a failing disk
  // is noticed even if there is always a stream of the map.
  explicit OpenMaps(Clock::duration shared_for = std::chrono::minutes(1))
      : shared_for_(shared_for) {}

  // The map in the file `descriptor`, watched: as another request has it open, or opened now.
  // `path` is the file's path, and `name` its name for messages; `checksum` is the one in its
  // header, as it was just read. Errors: as MappedFile::FromDescriptor() and OpenLazily().
  absl::StatusOr<LazyMap> Open(OwnedDescriptor descriptor, const std::string& path,
                               const std::string& name, uint64_t checksum);

  // Maps that are open now, for tests.
  size_t size() const;

 private:
  struct Entry {
    ChangeMapHeader header;
    std::weak_ptr<const PortableIndex> index;
    std::weak_ptr<const MappedFile> storage;
    Clock::time_point opened;
  };

  const Clock::duration shared_for_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by path and version of the file
};

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_OPEN_MAPS_H_
