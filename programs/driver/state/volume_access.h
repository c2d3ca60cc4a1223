// The volumes of a driver, whichever process has them open.
#ifndef CBT_PROGRAMS_DRIVER_STATE_VOLUME_ACCESS_H_
#define CBT_PROGRAMS_DRIVER_STATE_VOLUME_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/driver/state/catalog.h"
#include "programs/volume/control.h"
#include "programs/volume/snapshot_info.h"
#include "programs/volume/tracked_volume.h"

namespace cbt::driver {

// No write to a volume begins while it exists.
struct VolumeHold {
  std::string volume_id;
  std::unique_ptr<volume::ControlClient> client = nullptr;  // of its server
  // Or the volume, which is not attached: no server writes to it while it is open here.
  std::shared_ptr<volume::TrackedVolume> volume = nullptr;
};

// While a volume is attached to the node, nbdkit has it open, and requests go to its control
// socket. Otherwise this object opens it; a few stay open for the next request, and those that copy
// a snapshot until it is complete. Thread safe.
//
// Errors of all requests: those of TrackedVolume; UNAVAILABLE if another process has the volume and
// can't be reached; DATA_LOSS if the catalog has a volume whose directory holds none.
class VolumeAccess {
 public:
  static constexpr size_t kMaxOpen = 16;

  // `catalog` must outlive the object.
  explicit VolumeAccess(const Catalog& catalog) : catalog_(catalog) {}

  absl::StatusOr<volume::SnapshotInfo> TakeSnapshot(const std::string& id,
                                                    const std::string& snapshot);
  // Holds writes to a volume, at most for `seconds`. Errors: FAILED_PRECONDITION if its server is of
  // an earlier version.
  absl::StatusOr<VolumeHold> Hold(const std::string& id, unsigned seconds);
  // Takes the snapshot, and ends the hold. UNAVAILABLE if its time was over: there is no snapshot
  // then, or one that must not be used.
  absl::StatusOr<volume::SnapshotInfo> TakeSnapshot(VolumeHold hold, const std::string& snapshot);
  absl::StatusOr<volume::SnapshotInfo> FindSnapshot(const std::string& id,
                                                    const std::string& snapshot);
  absl::Status DeleteSnapshot(const std::string& id, const std::string& snapshot,
                              const std::optional<volume::MarkLimits>& marks = std::nullopt);
  absl::Status Resize(const std::string& id, uint64_t capacity);
  // Releases the space of the volume's own data, but not that of its snapshots.
  // Errors: UNAVAILABLE while a snapshot is being copied: that one would be of zeros.
  absl::Status Discard(const std::string& id);

  // Closes the volume if this object has it open, for nbdkit or for removal. Waits for requests
  // that run.
  absl::Status Release(const std::string& id);

 private:
  using Shared = std::shared_ptr<volume::TrackedVolume>;

  template <typename Result, typename Served, typename Opened>
  Result Ask(const std::string& id, Served served, Opened opened);
  absl::StatusOr<Shared> Open(const std::string& id);
  void CloseIfFailed(const std::string& id, Shared volume, const absl::Status& status);
  void CloseOld();

  const Catalog& catalog_;
  std::mutex mutex_;
  // The one used last comes first.
  std::list<std::pair<std::string, Shared>> open_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_STATE_VOLUME_ACCESS_H_
