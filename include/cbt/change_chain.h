// Chains: the change maps between neighbouring snapshots of one volume, in a directory, and the
// delta between any two of the snapshots from them.
//
// Beside each map the chain keeps unions of 2, 4, 8 ... neighbouring ones, so that any delta is a
// union of O(log n) maps (more where a union would be larger than a map may be); that is done
// container by container while the cursor runs. A manifest, replaced as a whole, says what belongs
// to the chain: after a crash at any point the chain is what it was before the change or after it.
// docs/reference/format.md has the bytes.
#ifndef CBT_CHANGE_CHAIN_H_
#define CBT_CHANGE_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"

namespace cbt {

struct ChainOptions {
  // Waits at each change until it is on the disk.
  bool sync = true;
  // What stands for the directory in messages; its path if empty.
  std::string name = {};
  // A union of neighbouring maps that would have more bytes, or more than a map may, is not kept: a
  // delta reads the maps themselves then.
  uint64_t max_union_bytes = kMaxMapBytes;
};

// A snapshot of a chain.
struct ChainSnapshot {
  std::string id;
  uint64_t capacity = 0;  // bytes
};

// A chain as it stood when it was opened, and as changed through this object since. Const functions
// may be called from any threads at once, changes need the object for themselves. One process at a
// time can have a chain open for changes, and a copy of it (fork()) can't: there every call that
// can fail does, with FAILED_PRECONDITION. Any number may read it meanwhile: what they have opened
// stays as it was. A change that failed may be on the disk all the same, when only bringing it
// there for good went wrong: the object then shows what is on the disk.
class ChangeChain {
 public:
  enum class Access { kRead, kChange };

  // Makes an empty chain in `directory` (made too, if it is not there; no parents), whose first
  // snapshot is `first`. The granularity (bytes) is that of all its maps.
  // Errors: ALREADY_EXISTS, INVALID_ARGUMENT, those of files.
  static absl::StatusOr<std::unique_ptr<ChangeChain>> Create(const std::string& directory,
                                                             const std::string& volume,
                                                             uint64_t granularity,
                                                             const ChainSnapshot& first,
                                                             const ChainOptions& options = {});

  // Files are looked up in the folder that `directory` stood for, as long as the object lives.
  // Errors: NOT_FOUND when there is no chain, DATA_LOSS when its manifest is damaged, UNIMPLEMENTED
  //         when it is of a newer version, UNAVAILABLE when another process changes it (kChange).
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
  virtual bool Contains(std::string_view id) const noexcept = 0;

  // Adds a snapshot: `map` tells what changed since the newest one. Its identity must name it as
  // the target, the newest one as the base, and the volume; its granularity may be another one,
  // then it is rounded outward to the chain's.
  // Errors: FAILED_PRECONDITION when the base is not the newest snapshot, ALREADY_EXISTS for a
  //         target that the chain has, INVALID_ARGUMENT for another volume or a bad name, those of
  //         files.
  // Cost:   amortised O(log n) unions.
  virtual absl::Status Append(const ChangeMap& map) = 0;

  // Forgets a snapshot, wherever it stands. Of one in the middle the two maps beside it unite; with
  // the oldest goes its map to the next one. The last remaining one can't go.
  // Errors: NOT_FOUND, FAILED_PRECONDITION for the only one, RESOURCE_EXHAUSTED when what the two
  //         maps make is larger than a map may be (kMaxMapBytes), those of files.
  virtual absl::Status Remove(std::string_view id) = 0;

  // The extents that changed from `base` to `target`, both in the chain, base not newer. What the
  // volume lost by being made smaller in between and got back by growing counts as changed.
  // Milliseconds to the first extent: files are checked as they are read.
  // Errors: NOT_FOUND, INVALID_ARGUMENT when the base is newer, those of files; DATA_LOSS from
  //         Next() for damage further on.
  virtual absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                              std::string_view target) const = 0;

  // Reads every file and compares it with the manifest.
  // Errors: DATA_LOSS that names the first file that is damaged or missing.
  virtual absl::Status Verify() const = 0;

 protected:
  ChangeChain() = default;
};

}  // namespace cbt

#endif  // CBT_CHANGE_CHAIN_H_
