// The change maps and chains next to the images of a volume.
#ifndef CBT_SOURCE_DIRECTORY_VOLUME_MAPS_H_
#define CBT_SOURCE_DIRECTORY_VOLUME_MAPS_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "cbt/change_chain.h"
#include "cbt/cursor.h"
#include "map/chain/chain_manifest.h"
#include "map/map_file.h"
#include "source/directory/open_maps.h"
#include "source/directory/snapshot_directory.h"

namespace cbt {

// Maps are the files `*.cbm` in the volume's directory, chains its directories `*.chain`. The
// snapshot names inside them count, not their file names: a name alone or a full id. Maps that name
// another volume are ignored. If several answer the same question all are compared: a map may lie
// next to the chain that it was appended to, and last week's chain next to this week's.
class VolumeMaps {
 public:
  static constexpr std::string_view kMapExtension = ".cbm";
  static constexpr std::string_view kChainExtension = ".chain";

  // Reads the headers of the maps and chains in `directory`, whose root must outlive the object. A
  // missing directory has no maps. `root_paths`: absolute paths of the root; maps in the root
  // itself may name an end of one of them as their volume. `open` must outlive the object.
  static VolumeMaps Read(const SnapshotDirectory& directory,
                         const std::vector<std::string>& root_paths, OpenMaps& open);

  // The extents that changed from snapshot `base` to `target` (names in the directory); null if no
  // map or chain answers. No data of the volume is read. If several answer, they are compared
  // first, in full and in the memory of two batches, in blocks of the coarsest, which is returned.
  // Errors: FAILED_PRECONDITION if an answer is damaged, of a newer version or contradicted by
  //         another one, INVALID_ARGUMENT if the base is newer than the target, ABORTED if
  //         something changed since the directory was listed: list it again. The cursor fails with
  //         ABORTED at its end if a file was overwritten in place.
  // `version`: receives a text that changes with the contents of the files that answer.
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(const std::string& base,
                                                      const std::string& target,
                                                      std::string* version = nullptr) const;

  // The same for what is allocated in `target`: a map without a base.
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated(const std::string& target,
                                                          std::string* version = nullptr) const;

  // True if a map or a chain names the snapshot.
  bool Knows(const std::string& name) const;

  // FAILED_PRECONDITION if something could not be read, which may have held the answer; else OK.
  const absl::Status& damage() const noexcept { return damage_; }

 private:
  struct Map {
    std::string file;
    std::string path;  // from the root
    ChangeMapHeader header;
  };

  struct Chain {
    // The descriptor by which the chain opens its files. Declared first, so that it is closed last.
    std::shared_ptr<const OwnedDescriptor> directory;
    std::unique_ptr<ChangeChain> chain;
    std::string file;
    ChainManifest manifest;  // as the chain was opened with
  };

  // A map or a chain that answers a request; valid as long as the object.
  struct Witness {
    std::string file;
    std::string version;
    std::function<absl::StatusOr<std::unique_ptr<ExtentCursor>>()> open;
  };

  VolumeMaps(int root, std::string volume, const std::vector<std::string>& root_paths,
             OpenMaps& open);
  void AddMap(int descriptor, const std::string& file, const std::string& path);
  void AddChain(int descriptor, const std::string& file);
  void NoteDamage(const absl::Status& status);
  bool IsOurs(const std::string& volume) const;
  std::string IdOf(const std::string& name) const;
  bool Names(const std::string& claimed, const std::string& name) const;
  std::vector<Witness> MapsOf(const std::string& base, const std::string& target) const;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> OpenMap(const Map& of) const;
  static absl::StatusOr<std::unique_ptr<ExtentCursor>> AgreedBy(
      const std::vector<Witness>& witnesses, std::string* version);

  int root_;
  std::string volume_;
  std::vector<std::string> root_paths_;
  OpenMaps* open_;
  std::vector<Map> maps_;
  std::vector<Chain> chains_;
  absl::Status damage_;
};

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_VOLUME_MAPS_H_
