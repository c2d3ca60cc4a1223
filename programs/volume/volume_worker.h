// What an open volume does without a caller.
#ifndef CBT_PROGRAMS_VOLUME_VOLUME_WORKER_H_
#define CBT_PROGRAMS_VOLUME_VOLUME_WORKER_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/process_mark.h"
#include "programs/volume/snapshot_copy.h"

namespace cbt::volume {

// A thread that copies snapshots, saves the tracker's state now and then, and repairs what makes
// every write fail. It keeps the last errors, for VolumeStatus. Thread safe.
class VolumeWorker {
 public:
  using Copies = std::vector<std::shared_ptr<SnapshotCopy>>;

  // Called by the thread, one at a time, without a lock.
  struct Tasks {
    // The copy has nothing left, or has failed.
    std::function<void(const std::shared_ptr<SnapshotCopy>&)> finish;
    std::function<absl::Status()> repair;
    std::function<void()> checkpoint;
    // Between checkpoints; 0: none.
    std::chrono::seconds interval{0};
  };

  VolumeWorker() = default;
  // As Stop(). In a forked child, which does not have the thread, it is left alone.
  ~VolumeWorker();
  VolumeWorker(const VolumeWorker&) = delete;
  VolumeWorker& operator=(const VolumeWorker&) = delete;

  void Start(Tasks tasks);
  // Returns once no task runs; none does afterwards.
  void Stop();

  // The copies to go on with, in turns. Copying begins once every write preserves what it changes:
  // the copy would be of two times otherwise.
  void SetCopies(Copies copies);
  // It has failed for good.
  void Drop(const std::shared_ptr<SnapshotCopy>& copy);
  // Waits until there are none, or for `seconds`; true if there are none.
  bool WaitForCopies(double seconds) const;

  void NoteError(const absl::Status& status);
  // Writes fail with `status` before they are issued, and will until a repair has succeeded. Repairs
  // that fail are tried again, after growing pauses.
  void AskForRepair(const absl::Status& status);
  // Why writes fail, while they do; otherwise the last error. Empty if there was none.
  std::string error() const;

 private:
  void Run();
  void Repair();

  const ProcessMark process_;
  Tasks tasks_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stopping_ = false;
  Copies copies_;
  std::string last_error_;
  bool repair_ = false;  // asked for
  std::chrono::steady_clock::time_point repair_due_;
  std::chrono::milliseconds pause_;
  std::string write_error_;  // why writes fail, until they are repaired
  std::thread thread_;
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_VOLUME_WORKER_H_
