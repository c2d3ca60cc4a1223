// The data of a volume's snapshots: files of their own, and copies that are being made.
#ifndef CBT_PROGRAMS_VOLUME_SNAPSHOT_FILES_H_
#define CBT_PROGRAMS_VOLUME_SNAPSHOT_FILES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/directory.h"
#include "cbt/extent.h"
#include "programs/volume/snapshot_copy.h"
#include "programs/volume/snapshot_info.h"
#include "programs/volume/volume_directory.h"
#include "programs/volume/write_gate.h"

namespace cbt::volume {

// A snapshot has data once its file has its name in snapshots/ or its copy has begun in copying/,
// and until that is removed. Names are those of the chain, see IdOf().
//
// One thread at a time, except for Preserve() and copying(), which writers call inside the gate:
// the list of copies changes while the gate is held.
class SnapshotFiles {
 public:
  using Copies = std::vector<std::shared_ptr<SnapshotCopy>>;
  using Note = std::function<void(const absl::Status&)>;

  explicit SnapshotFiles(WriteGate& gate) : gate_(gate) {}

  // Opens the directories. Errors: NOT_FOUND, file errors.
  absl::Status Open(const Directory& volume);
  // Goes on with the copies of an earlier process. One that can't be continued is dropped with
  // everything that is in its directory, and so are all if `replaced`, the state of `data`, is not
  // OK: regions that have not been copied exist nowhere else. `note` hears of them.
  absl::Status ResumeCopies(int data, const absl::Status& replaced, const Note& note);
  // Leaves these copies, and removes the others.
  absl::Status KeepCopies(Copies kept);
  // Lets all go, and leaves their files. No write may follow.
  void Close() noexcept { copies_.clear(); }
  // Removes files of snapshots whose id a newer one of `records` has.
  void RemoveSuperseded(const std::vector<SnapshotRecord>& records, const Note& note) const;

  absl::StatusOr<bool> Has(const std::string& name) const;
  // Errors: NOT_FOUND.
  absl::StatusOr<SnapshotInfo> InfoOf(const std::string& name) const;
  // The file of a snapshot that is ready, which had `size` bytes. Errors: DATA_LOSS if it has not.
  absl::StatusOr<OwnedDescriptor> OpenFile(const std::string& name, uint64_t size) const;

  // A snapshot of `data` as it is while writes are held. False if files can't be cloned here.
  absl::StatusOr<bool> Clone(const std::string& name, int data);
  // The same by a copy, which is to be continued.
  absl::Status BeginCopy(const std::string& name, uint64_t size, int data);
  // After either: their names are on disk.
  absl::Status SyncNames() const;

  // Gives a copy that is complete its name among the snapshots. Forget() must follow.
  absl::Status Publish(const SnapshotCopy& copy) const;
  // The list is left without the copy.
  void Forget(const std::shared_ptr<SnapshotCopy>& copy);
  // Removes the data of a snapshot, or its copy.
  absl::Status Remove(const std::string& name);
  // Removes the file that Publish() may have made.
  void RemoveFile(const std::string& name) const;

  // Those that are being made.
  const Copies& copies() const noexcept { return copies_; }
  bool copying() const noexcept { return !copies_.empty(); }
  // Every copy has what it needs of the extent, which may be changed then; see
  // SnapshotCopy::Preserve(). 0 or an error number.
  int Preserve(Extent extent) const noexcept;
  // The error, named as that of the copies.
  absl::Status ErrorOfCopies(int error) const;

  const Directory& files() const noexcept { return *files_; }
  // True once a file was cloned.
  bool clones() const noexcept { return clones_.load(); }
  // The longest time for which writes were held.
  uint64_t longest_hold_ns() const noexcept { return longest_hold_ns_.load(); }

 private:
  void SetCopies(Copies copies);

  WriteGate& gate_;
  std::unique_ptr<const Directory> files_;
  std::unique_ptr<const Directory> copying_;
  Copies copies_;
  std::atomic<uint64_t> longest_hold_ns_{0};
  std::atomic<bool> clones_{false};
};

// The time of the system's clock, nanoseconds since 1970.
int64_t Now() noexcept;

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_SNAPSHOT_FILES_H_
