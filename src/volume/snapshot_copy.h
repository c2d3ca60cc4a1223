// A snapshot that is copied while the volume is written to, where files can't be cloned.
#ifndef CBT_VOLUME_SNAPSHOT_COPY_H_
#define CBT_VOLUME_SNAPSHOT_COPY_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "cbt/extent.h"
#include "cbt/units.h"
#include "map/folder/folder.h"
#include "volume/snapshot_info.h"

namespace cbt::volume {

// The copy consists of regions. A writer calls Preserve() before it changes a region, and waits
// while the region's old contents are copied; Continue() copies the others. A file beside the copy
// records the regions that have been copied, each before a write to it can be issued. After the
// process was killed the copy can therefore continue: system calls that had returned have taken
// effect. A restart of the machine may have lost any of it, so the file also says under which boot
// it is valid.
class SnapshotCopy {
 public:
  static constexpr uint64_t kRegionBytes = 256 * kKiB;

  // Begins a copy of `data` (open for reading; must outlive the object) in the folder `copying`,
  // for the snapshot called `name` (see IdOf()). What an earlier one left there is replaced.
  static absl::StatusOr<std::shared_ptr<SnapshotCopy>> Begin(const Folder& copying,
                                                             const std::string& name, uint64_t size,
                                                             int64_t created_ns, int data);

  // The copy that an earlier process began.
  // Errors: NOT_FOUND without one, ABORTED if it can't be continued; file errors.
  static absl::StatusOr<std::shared_ptr<SnapshotCopy>> Resume(const Folder& copying,
                                                              const std::string& name, int data);

  // What is known about a copy, whether it can be continued or not. NOT_FOUND without one.
  static absl::StatusOr<SnapshotInfo> ReadInfo(const Folder& copying, const std::string& name);

  SnapshotCopy(const SnapshotCopy&) = delete;
  SnapshotCopy& operator=(const SnapshotCopy&) = delete;

  const std::string& name() const noexcept { return name_; }
  // Not ready.
  const SnapshotInfo& info() const noexcept { return info_; }

  // Returns once no part of `extent` (inside the volume) is needed any more. Any thread. If copying
  // fails, the copy has failed(), and writers may go on. Returns 0, or an error number if even the
  // failure can't be recorded: then the extent must not be changed, because a later Resume() could
  // take its new contents.
  int Preserve(Extent extent) noexcept;

  // Copies up to `regions` more; false if nothing is left or the copy has failed(). One thread at a
  // time.
  bool Continue(uint64_t regions) noexcept;

  // The first error of copying, or 0.
  int failed() const noexcept { return failed_.load(); }

  // Writes the copy to disk and gives it the snapshot's time, so that it can be renamed.
  // Requires: Continue() has returned false.
  // Errors:   that of the copy if it has failed(), file errors.
  absl::Status Finish();

  // Makes the copy valid under a later boot too. No Preserve() or Continue() may follow.
  absl::Status Suspend();

 private:
  enum State : uint8_t { kWanted, kBusy, kDone };

  struct Header {
    std::string boot = {};
    SnapshotInfo info = {};
  };
  static absl::StatusOr<Header> ReadHeader(int list, const std::string& name);

  SnapshotCopy(const Folder& copying, const std::string& name, SnapshotInfo info, int data);
  absl::Status FileErrorOf(int error) const;
  absl::Status WriteHeader(const std::string& boot);
  uint64_t Regions() const noexcept { return states_.size(); }
  void CopyRegions(uint64_t begin, uint64_t end, bool hole) noexcept;
  bool Claim(uint64_t region) noexcept;
  void Fail(int error) noexcept;

  const Folder copying_;
  const std::string name_;
  const SnapshotInfo info_;
  const int data_;
  OwnedDescriptor copy_;
  OwnedDescriptor copied_;  // the header, and a byte per region
  std::vector<std::atomic<uint8_t>> states_;
  uint64_t next_ = 0;
  std::atomic<int> failed_{0};
  std::atomic<bool> stuck_{false};  // failed, and that could not be recorded
  std::mutex mutex_;
  std::condition_variable region_done_;
};

// Removes the files of a copy. False, with errno, if it could still be continued.
[[nodiscard]] bool RemoveCopyFiles(const Folder& copying, const std::string& name) noexcept;

}  // namespace cbt::volume

#endif  // CBT_VOLUME_SNAPSHOT_COPY_H_
