// The snapshots and marks of an open volume, and the chain between them.
#ifndef CBT_PROGRAMS_VOLUME_VOLUME_HISTORY_H_
#define CBT_PROGRAMS_VOLUME_VOLUME_HISTORY_H_

#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"
#include "cbt/change_chain.h"
#include "cbt/cursor.h"
#include "programs/volume/snapshot_info.h"
#include "programs/volume/volume_directory.h"
#include "programs/volume/volume_marks.h"

namespace cbt::volume {

// Snapshots have a record here while they have data. The chain may have more entries: marks, and
// the newest moment, from which the tracker counts.
//
// What is called a question may be asked in any thread; all else one thread at a time.
class VolumeHistory {
 public:
  VolumeHistory() : marks_(mutex_) {}

  // Errors: NOT_FOUND, those of OpenChainIn().
  absl::Status OpenChain(const Directory& volume);
  absl::Status OpenMarks(const Directory& volume) { return marks_.Open(volume); }
  // Deltas fail from here on.
  void Close();

  // Questions.
  std::vector<SnapshotInfo> snapshots() const;
  std::vector<SnapshotMark> marks() const;
  // Errors: NOT_FOUND.
  absl::StatusOr<SnapshotRecord> Find(std::string_view id) const;
  // Errors: the same, UNAVAILABLE while it is being copied.
  absl::StatusOr<SnapshotRecord> FindReady(std::string_view id) const;
  // See TrackedVolume::Delta().
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                      std::string_view target) const;

  const ChangeChain& chain() const noexcept { return *chain_; }
  // Oldest first.
  const std::vector<SnapshotRecord>& records() const noexcept { return records_; }
  bool HasRecord(std::string_view name) const noexcept;
  void SetRecords(std::vector<SnapshotRecord> records);
  // Adds a moment to the chain unless it is there, and a record if it has `info`.
  absl::Status Append(const ChangeMap& map, const std::string& name,
                      const std::optional<SnapshotInfo>& info);
  void SetReady(std::string_view name);
  void EraseRecord(std::string_view name);
  // Removes the entries from the chain that are no snapshot and no mark, apart from the newest.
  // Cost: that of what was appended or dropped since the last call; the first looks at all.
  absl::Status RemoveHidden();

  absl::Status LoadMarks(const std::function<void(const absl::Status&)>& note) {
    return marks_.Load(*chain_, records_, note);
  }
  VolumeMarks& kept_marks() noexcept { return marks_; }

 private:
  const SnapshotRecord* FindRecord(std::string_view id) const noexcept;
  void SuspectAll();

  mutable std::shared_mutex mutex_;
  std::unique_ptr<ChangeChain> chain_;
  std::vector<SnapshotRecord> records_;
  VolumeMarks marks_;
  // The entries of the chain that may be no snapshot and no mark; while `all_suspects_`, any may.
  bool all_suspects_ = true;
  std::vector<std::string> suspects_;
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_VOLUME_HISTORY_H_
