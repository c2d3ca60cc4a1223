// Chains: the change maps between neighbouring snapshots of one volume, in a directory, and from
// them the delta between any two of the snapshots.
//
// In addition to the maps, the chain keeps unions of 2, 4, 8 ... neighbouring maps, so that any
// delta is a union of O(log n) maps (more if a union would exceed the maximum size of a map),
// computed container by container while the cursor runs. A manifest, always replaced as a whole,
// lists what belongs to the chain: after a crash at any point, the chain is in the state before or
// after the change. docs/reference/format.md describes the bytes.
#ifndef CBT_CHANGE_CHAIN_H_
#define CBT_CHANGE_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"

namespace cbt {

struct ChainOptions {
  // Waits at each change until it is on disk.
  bool sync = true;
  // The name of the directory in messages; its path if empty.
  std::string name = {};
  // A union of neighbouring maps that would be larger than this, or than the maximum size of a map,
  // is not kept: deltas read the maps themselves instead.
  uint64_t max_union_bytes = kMaxMapBytes;
};

// A snapshot of a chain.
struct ChainSnapshot {
  std::string id;
  uint64_t capacity = 0;  // bytes
  // When it was taken: nanoseconds since 1970. Nothing: not known.
  std::optional<int64_t> time = {};
};

// A chain as it was when opened, plus the changes made through this object since. Const functions
// may be called from several threads at once; a change needs exclusive access to the object. Only
// one process at a time can open a chain for changes. In a child that it forks, every call that can
// fail fails with FAILED_PRECONDITION. Any number of processes may read meanwhile. They see the
// state that they opened, never a mixture; once a change has removed a file that they need and have
// not opened yet, they get ABORTED and have to open the chain again. A change that failed only
// while being synced may be on disk nevertheless; the object then shows what is on disk.
class ChangeChain {
 public:
  enum class Access { kRead, kChange };

  // Creates an empty chain in `directory` (created if missing, but not its parents) whose first
  // snapshot is `first`. All its maps have this granularity (bytes).
  // Errors: ALREADY_EXISTS, INVALID_ARGUMENT, file errors.
  static absl::StatusOr<std::unique_ptr<ChangeChain>> Create(const std::string& directory,
                                                             const std::string& volume,
                                                             uint64_t granularity,
                                                             const ChainSnapshot& first,
                                                             const ChainOptions& options = {});

  // The object keeps using the directory that `directory` named at the time of the call.
  // Errors: NOT_FOUND if there is no chain, DATA_LOSS if its manifest is damaged, UNIMPLEMENTED if
  //         it has a newer version, UNAVAILABLE if another process has it open for changes
  //         (kChange).
  static absl::StatusOr<std::unique_ptr<ChangeChain>> Open(const std::string& directory,
                                                           Access access,
                                                           const ChainOptions& options = {});

  virtual ~ChangeChain() = default;
  ChangeChain(const ChangeChain&) = delete;
  ChangeChain& operator=(const ChangeChain&) = delete;

  virtual const std::string& volume() const noexcept = 0;
  virtual uint64_t granularity() const noexcept = 0;
  // Oldest first.
  virtual std::vector<ChainSnapshot> snapshots() const = 0;
  // The last of snapshots(), without a copy of all.
  virtual ChainSnapshot newest() const { return snapshots().back(); }
  virtual bool Contains(std::string_view id) const noexcept = 0;

  // The size in bytes of the file with the map to each snapshot, in the order of snapshots(); 0 for
  // the oldest, which has none, and where the file can't be looked at. Unions take some more.
  // Cost: a system call per snapshot.
  virtual std::vector<uint64_t> MapBytes() const = 0;

  // Adds a snapshot: `map` holds what changed since the newest one. The map's identity must name
  // the new snapshot as the target, the newest one as the base, and the volume. A different
  // granularity is rounded outward to the chain's. `time`: when the new snapshot was taken, as in
  // ChainSnapshot.
  // Errors: FAILED_PRECONDITION if the base is not the newest snapshot, ALREADY_EXISTS for a target
  //         that the chain has, INVALID_ARGUMENT for another volume or an invalid name, file
  //         errors.
  // Cost:   amortised O(log n) unions.
  virtual absl::Status Append(const ChangeMap& map, std::optional<int64_t> time) = 0;
  absl::Status Append(const ChangeMap& map) { return Append(map, std::nullopt); }

  // Removes a snapshot at any position. Removing one in the middle unites the two maps next to it;
  // removing the oldest drops its map to the next one. The last remaining snapshot can't be
  // removed.
  // Errors: NOT_FOUND, FAILED_PRECONDITION for the only one, RESOURCE_EXHAUSTED if the union of the
  //         two maps exceeds kMaxMapBytes, file errors.
  virtual absl::Status Remove(std::string_view id) = 0;

  // The extents that changed from `base` to `target`, both in the chain, `base` not newer. A range
  // that the volume lost by shrinking in between and regained by growing counts as changed. The
  // first extent takes milliseconds: files are checked as they are read.
  // Errors: NOT_FOUND, INVALID_ARGUMENT if the base is newer, file errors; ABORTED if a file is
  //         missing: another process has changed the chain since it was opened, so open it again,
  //         or it is damaged; DATA_LOSS from Next() where a file is damaged.
  virtual absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                              std::string_view target) const = 0;

  // Reads every file and compares it with the manifest.
  // Errors: DATA_LOSS, naming the first damaged or missing file.
  virtual absl::Status Verify() const = 0;

 protected:
  ChangeChain() = default;
};

}  // namespace cbt

#endif  // CBT_CHANGE_CHAIN_H_
