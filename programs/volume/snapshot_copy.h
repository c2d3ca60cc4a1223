// A snapshot that is copied while the volume is written to, where files can't be cloned.
#ifndef CBT_PROGRAMS_VOLUME_SNAPSHOT_COPY_H_
#define CBT_PROGRAMS_VOLUME_SNAPSHOT_COPY_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/directory.h"
#include "cbt/extent.h"
#include "cbt/units.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/snapshot_info.h"

namespace cbt::volume {

// The copy consists of regions. A writer calls Preserve() before it changes a region, and waits
// while the region's old contents are copied; Continue() copies the others. A file beside the copy
// lists the regions that have been copied. A region is listed once its copy is on disk, and a write
// to it is issued once the list is. So whatever ended the process, the list holds for the copy,
// after a kill as after a loss of power or of the file system. A region that is not
// listed has not been changed, and is copied anew.
class SnapshotCopy {
 public:
  static constexpr uint64_t kRegionBytes = 256 * kKiB;

  // Begins a copy of `data` (open for reading; must outlive the object) in the directory `copying`,
  // for the snapshot called `name` (see IdOf()). What an earlier one left there is replaced. The
  // files are on disk when it returns, their names once `copying` is synced.
  // Requires: what was written to `data` before the snapshot is on disk. A copy that continues
  //           after a loss of power would otherwise mix what survived with what was copied before.
  static absl::StatusOr<std::shared_ptr<SnapshotCopy>> Begin(const Directory& copying,
                                                             const std::string& name, uint64_t size,
                                                             int64_t created_ns, int data);

  // The copy that an earlier process began.
  // Errors: NOT_FOUND without one, ABORTED if it can't be continued; file errors.
  static absl::StatusOr<std::shared_ptr<SnapshotCopy>> Resume(const Directory& copying,
                                                              const std::string& name, int data);

  // What is known about a copy, whether it can be continued or not. NOT_FOUND without one.
  static absl::StatusOr<SnapshotInfo> ReadInfo(const Directory& copying, const std::string& name);

  SnapshotCopy(const SnapshotCopy&) = delete;
  SnapshotCopy& operator=(const SnapshotCopy&) = delete;

  const std::string& name() const noexcept { return name_; }
  // Not ready.
  const SnapshotInfo& info() const noexcept { return info_; }

  // Returns once no part of `extent` (inside the volume) is needed any more. Any thread. If copying
  // fails, the copy has failed(), and writers may go on. Returns 0, or an error number if even the
  // failure can't be recorded: then the extent must not be changed, because a later Resume() could
  // take its new contents.
  // Cost: the first time for a region, its copy and two syncs, which concurrent threads share.
  int Preserve(Extent extent) noexcept;

  // Copies up to `regions` more, and syncs them; false if nothing is left or the copy has failed().
  // One thread at a time.
  bool Continue(uint64_t regions) noexcept;

  // The first error of copying, or 0.
  int failed() const noexcept { return failed_.load(); }

  // Writes the copy to disk and gives it the snapshot's time, so that it can be renamed.
  // Requires: Continue() has returned false.
  // Errors:   that of the copy if it has failed(), file errors.
  absl::Status Finish();

 private:
  // kCopied: not listed yet. kDone: listed, on disk; or the copy has failed.
  enum State : uint8_t { kWanted, kBusy, kCopied, kDone };
  struct Regions {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  static absl::StatusOr<SnapshotInfo> ReadHeader(int list, const std::string& name);

  SnapshotCopy(const Directory& copying, const std::string& name, SnapshotInfo info, int data);
  absl::Status FileErrorOf(int error) const;
  absl::Status WriteList();
  absl::Status ClearUnlisted();
  uint64_t CountOfRegions() const noexcept { return states_.size(); }
  void CopyRegions(Regions regions, bool hole) noexcept;
  bool Claim(uint64_t region) noexcept;
  bool AllAre(Regions regions, State least) const noexcept;
  void List(std::unique_lock<std::mutex>& lock) noexcept;
  int SyncAndList(std::span<const Regions> copied) noexcept;
  void Fail(int error) noexcept;

  const Directory copying_;
  const std::string name_;
  const SnapshotInfo info_;
  const int data_;
  OwnedDescriptor copy_;
  OwnedDescriptor copied_;  // the header, and a byte per region
  std::vector<std::atomic<uint8_t>> states_;
  CopyTarget target_ = CopyTarget::kZeros;
  uint64_t next_ = 0;
  uint64_t data_end_ = 0;  // from `next_` up to here, data was found
  std::atomic<int> failed_{0};
  std::atomic<bool> stuck_{false};  // failed, and that could not be recorded
  std::mutex mutex_;
  std::condition_variable changed_;            // a state, or listing_
  bool listing_ = false;                       // a thread is in SyncAndList()
  std::array<Regions, 64> copied_since_ = {};  // those in state kCopied; the others: count_since_
  std::array<Regions, 64> being_listed_ = {};
  size_t count_since_ = 0;
};

// The name of the list of a copy's regions.
std::string CopiedName(const std::string& name);

// Removes the files of a copy, on disk too. False, with errno, if it could still be continued.
[[nodiscard]] bool RemoveCopyFiles(const Directory& copying, const std::string& name) noexcept;

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_SNAPSHOT_COPY_H_
