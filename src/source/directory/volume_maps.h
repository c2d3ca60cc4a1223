// The change maps and chains beside the images of a volume.
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
#include "source/directory/snapshot_folder.h"

namespace cbt {

// Maps are the files `*.cbm` in the volume's folder, chains its folders `*.chain`. What they say
// about snapshots counts, not how they are called: names are those of snapshots, alone or as whole
// ids. A map that names another volume is not ours. Of several that tell one thing all are asked: a
// map may lie beside the chain that it was appended to, and last week's chain beside this week's.
class VolumeMaps {
 public:
  static constexpr std::string_view kMapExtension = ".cbm";
  static constexpr std::string_view kChainExtension = ".chain";

  // Reads the headers of the maps and chains in `folder`, whose root must outlive the object. A
  // missing folder has no maps. `root_paths`: absolute paths of the root; maps in the root itself
  // may name an end of one of them as their volume.
  static VolumeMaps Read(const SnapshotFolder& folder, const std::vector<std::string>& root_paths);

  // The extents that changed from snapshot `base` to `target` (names in the folder); null when
  // nothing tells. No data of the volume is read. Where several tell, they are compared first, from
  // beginning to end and in the memory of two batches, in blocks of the coarsest, which answers.
  // Errors: FAILED_PRECONDITION when what would tell is damaged, of a newer version or contradicted
  //         by another one, INVALID_ARGUMENT when the base is newer than the target, ABORTED when
  //         something changed since it was looked at: reading anew helps. The cursor fails with
  //         ABORTED in the end when a file was written to where it lies.
  // `version`: takes a text that is another one when the files that answer hold something else.
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(const std::string& base,
                                                      const std::string& target,
                                                      std::string* version = nullptr) const;

  // The same for what is allocated in `target`: a map without a base.
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated(const std::string& target,
                                                          std::string* version = nullptr) const;

  // True when a map or a chain speaks of the snapshot.
  bool Knows(const std::string& name) const;

  // What could not be read, FAILED_PRECONDITION; OK when everything could. It may have been what
  // would have told.
  const absl::Status& damage() const noexcept { return damage_; }

 private:
  struct Map {
    std::string file;
    std::string path;  // from the root
    ChangeMapHeader header;
  };

  struct Chain {
    // What the chain's files are opened by. Before it, so that it is closed after it.
    std::shared_ptr<const OwnedDescriptor> directory;
    std::unique_ptr<ChangeChain> chain;
    std::string file;
    ChainManifest manifest;  // as the chain was opened with
  };

  // A map or a chain that tells what was asked for; valid as long as the object.
  struct Teller {
    std::string file;
    std::string version;
    std::function<absl::StatusOr<std::unique_ptr<ExtentCursor>>()> open;
  };

  VolumeMaps(int root, std::string volume, const std::vector<std::string>& root_paths);
  void AddMap(int descriptor, const std::string& file, const std::string& path);
  void AddChain(int descriptor, const std::string& file);
  void NoteDamage(const absl::Status& status);
  bool IsOurs(const std::string& volume) const;
  std::string IdOf(const std::string& name) const;
  bool Names(const std::string& said, const std::string& name) const;
  std::vector<Teller> MapsOf(const std::string& base, const std::string& target) const;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> OpenMap(const Map& of) const;
  static absl::StatusOr<std::unique_ptr<ExtentCursor>> AgreedBy(const std::vector<Teller>& tellers,
                                                                std::string* version);

  int root_;
  std::string volume_;
  std::vector<std::string> root_paths_;
  std::vector<Map> maps_;
  std::vector<Chain> chains_;
  absl::Status damage_;
};

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_VOLUME_MAPS_H_
