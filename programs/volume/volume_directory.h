// Names in a volume's directory, and what its files say about snapshots.
#ifndef CBT_PROGRAMS_VOLUME_VOLUME_DIRECTORY_H_
#define CBT_PROGRAMS_VOLUME_VOLUME_DIRECTORY_H_

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"
#include "cbt/change_chain.h"
#include "cbt/cursor.h"
#include "programs/volume/snapshot_info.h"

namespace cbt::volume {

inline constexpr char kDataName[] = "data";
inline constexpr char kChainName[] = "chain";
inline constexpr char kRevertName[] = "REVERT";
// There while a volume is made or removed: parts beside it, without a manifest, may be replaced.
inline constexpr char kUnfinishedName[] = "UNFINISHED";
inline constexpr char kSnapshotsName[] = "snapshots";
inline constexpr char kCopyingName[] = "copying";
inline constexpr char kMarksName[] = "marks";
inline constexpr std::string_view kTrackerPrefix = "tracker-";
// '~' is not allowed in ids.
inline constexpr std::string_view kCopiedSuffix = "~copied";

// Where the chain of a volume begins: a state that no snapshot has, and that is removed with the
// first snapshot.
inline constexpr char kOriginName[] = "#0";

std::string TrackerName(uint64_t number);

// A snapshot has one name in the chain, in the tracker and as a file: its id. A snapshot that was
// deleted stays in the chain while it is the newest, because the tracker counts from it; if its id
// is used again meanwhile, the name of the new one is ID#1 (2, ...). Returns the id of a name;
// empty for kOriginName.
std::string_view IdOf(std::string_view name);
// A name for a new snapshot, which the chain does not have.
std::string NameFor(const ChangeChain& chain, const std::string& id);

// Nanoseconds since 1970.
int64_t ToNanoseconds(const timespec& time) noexcept;
timespec ToTimespec(int64_t nanoseconds) noexcept;

struct SnapshotRecord {
  std::string name = {};
  SnapshotInfo info = {};
};

// What the file of a complete snapshot says about it. NOT_FOUND if it is missing.
absl::StatusOr<SnapshotInfo> ReadSnapshotFile(const Directory& snapshots, const std::string& name);

struct MarkRecord {
  std::string name = {};
  SnapshotMark mark = {};
};

// The marks among the entries of the chain: those without a snapshot, with a file in `marks`, whose
// id no snapshot and no newer mark has. Oldest first.
absl::StatusOr<std::vector<MarkRecord>> ReadMarks(const ChangeChain& chain,
                                                  const std::vector<SnapshotRecord>& snapshots,
                                                  const Directory& marks);

// The name in the chain of the base of a delta: a snapshot that is ready, or a mark.
// Errors: NOT_FOUND, UNAVAILABLE while the snapshot is being copied.
absl::StatusOr<std::string> NameOfBase(std::string_view id,
                                       const std::vector<SnapshotRecord>& snapshots,
                                       const std::vector<MarkRecord>& marks);

// Keeps the newest of those with one id: an older one was being deleted, or given up, when that was
// interrupted.
void DropSuperseded(std::vector<SnapshotRecord>& records);

// The snapshots of the chain that have a file, oldest first.
absl::StatusOr<std::vector<SnapshotRecord>> ReadSnapshots(const ChangeChain& chain,
                                                          const Directory& snapshots);

// NOT_FOUND, naming the snapshot.
absl::Status NoSnapshot(std::string_view id);
// UNAVAILABLE: it is being copied.
absl::Status NotReady(std::string_view id);

// The path of a snapshot's file: `directory` is the path by which the volume was opened.
// Errors: ABORTED if it names another file, because the volume was moved meanwhile.
absl::StatusOr<std::string> PathOfSnapshot(const std::string& directory, const Directory& snapshots,
                                           const std::string& name);

// See TrackedVolume::Allocated(); the file `name` is that of snapshot `id`.
absl::StatusOr<std::unique_ptr<ExtentCursor>> AllocatedIn(const Directory& snapshots,
                                                          const std::string& name,
                                                          std::string_view id,
                                                          uint64_t granularity);

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_VOLUME_DIRECTORY_H_
