// The moments of deleted snapshots that a volume keeps.
#ifndef CBT_PROGRAMS_VOLUME_VOLUME_MARKS_H_
#define CBT_PROGRAMS_VOLUME_VOLUME_MARKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/directory.h"
#include "cbt/change_chain.h"
#include "programs/volume/snapshot_info.h"
#include "programs/volume/volume_directory.h"

namespace cbt::volume {

// A mark exists once its file does, and until that is removed; the chain must not let its entry go
// while there is a mark. One thread at a time. Only the list changes under `list_lock`: who reads
// it in another thread holds that, shared.
class VolumeMarks {
 public:
  explicit VolumeMarks(std::shared_mutex& list_lock) : lock_(list_lock) {}

  // Opens marks/ of the volume, which is made if missing: a volume of an earlier version has none.
  absl::Status Open(const Directory& volume);

  // Finds the marks among the entries of the chain, and removes files that are no mark's; `note`
  // hears of those that can't be.
  absl::Status Load(const ChangeChain& chain, const std::vector<SnapshotRecord>& snapshots,
                    const std::function<void(const absl::Status&)>& note);

  // Before a snapshot is deleted: makes the file of its mark, durably. Add() must follow once the
  // snapshot is gone.
  absl::Status Write(const std::string& name);
  void Add(const ChangeChain& chain, const std::string& name);

  // Removes the marks of this id. After an error, some may be left.
  absl::Status Remove(std::string_view id);
  // Removes the oldest until the rest is within the limits. `now_ns`: nanoseconds since 1970.
  absl::Status Limit(const ChangeChain& chain, const MarkLimits& limits, int64_t now_ns);

  // The names of those that were removed since the last call.
  std::vector<std::string> TakeRemoved() noexcept { return std::exchange(removed_, {}); }

  // Oldest first.
  const std::vector<MarkRecord>& list() const noexcept { return list_; }

 private:
  absl::Status RemoveIf(const std::function<bool(const MarkRecord&)>& is_removed);

  std::shared_mutex& lock_;
  std::unique_ptr<const Directory> files_;
  std::vector<MarkRecord> list_;
  std::vector<std::string> removed_;
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_VOLUME_MARKS_H_
