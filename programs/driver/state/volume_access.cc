#include "programs/driver/state/volume_access.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt::driver {
namespace {

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace

template <typename Result, typename Served, typename Opened>
Result VolumeAccess::Ask(const std::string& id, Served served, Opened opened) {
  // A killed nbdkit leaves its socket; one that never ran has none.
  absl::StatusOr<std::unique_ptr<volume::ControlClient>> client =
      volume::ControlClient::Connect(catalog_.ControlSocket(id));
  if (client.ok()) return served(**client);
  if (client.status().code() != absl::StatusCode::kNotFound &&
      client.status().code() != absl::StatusCode::kUnavailable) {
    return client.status();
  }
  absl::StatusOr<Shared> volume = Open(id);
  // "Not found" is the answer of a volume about a snapshot, and not that there is no volume.
  if (absl::IsNotFound(volume.status())) return absl::DataLossError(volume.status().message());
  if (!volume.ok()) return volume.status();
  Result result = opened(**volume);
  CloseIfFailed(id, *std::move(volume), StatusOf(result));
  return result;
}

// After a disk has failed, only a volume that is opened again is known to be sound.
void VolumeAccess::CloseIfFailed(const std::string& id, Shared volume, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status) && !absl::IsUnavailable(status)) return;
  volume = nullptr;
  Release(id).IgnoreError();
}

absl::StatusOr<VolumeAccess::Shared> VolumeAccess::Open(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&id](const auto& entry) { return entry.first == id; });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return open_.front().second;
  }
  absl::StatusOr<std::unique_ptr<volume::TrackedVolume>> opened =
      volume::TrackedVolume::Open(catalog_.VolumeDirectory(id));
  if (!opened.ok()) return opened.status();
  open_.emplace_front(id, *std::move(opened));
  Shared volume = open_.front().second;
  CloseOld();
  return volume;
}

// The oldest ones that are idle. A volume that is in use, or copies, stays.
void VolumeAccess::CloseOld() {
  for (auto at = open_.end(); at != open_.begin() && open_.size() > kMaxOpen;) {
    --at;
    if (at->second.use_count() == 1 && at->second->status().copying == 0) at = open_.erase(at);
  }
}

absl::Status VolumeAccess::Release(const std::string& id) {
  Shared volume;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(open_.begin(), open_.end(),
                                    [&id](const auto& entry) { return entry.first == id; });
    if (found == open_.end()) return absl::OkStatus();
    volume = std::move(found->second);
    open_.erase(found);
  }
  return volume->Close();
}

absl::StatusOr<volume::SnapshotInfo> VolumeAccess::TakeSnapshot(const std::string& id,
                                                                const std::string& snapshot) {
  const auto take = [&snapshot](auto& volume) { return volume.TakeSnapshot(snapshot); };
  return Ask<absl::StatusOr<volume::SnapshotInfo>>(id, take, take);
}

absl::StatusOr<VolumeHold> VolumeAccess::Hold(const std::string& id, unsigned seconds) {
  using volume::ControlClient;
  absl::StatusOr<std::unique_ptr<ControlClient>> client =
      ControlClient::Connect(catalog_.ControlSocket(id));
  if (client.ok()) {
    const absl::Status held = (*client)->HoldWrites(seconds);
    if (held.ok()) return VolumeHold{.volume_id = id, .client = *std::move(client)};
    if (!absl::IsInvalidArgument(held)) return held;
    return absl::FailedPreconditionError(
        absl::StrCat("volume ", id,
                     " is served by an earlier version, which can't hold writes: "
                     "upgrade the volume host"));
  }
  if (!absl::IsNotFound(client.status()) && !absl::IsUnavailable(client.status())) {
    return client.status();
  }
  absl::StatusOr<Shared> volume = Open(id);
  if (absl::IsNotFound(volume.status())) return absl::DataLossError(volume.status().message());
  if (!volume.ok()) return volume.status();
  return VolumeHold{.volume_id = id, .volume = *std::move(volume)};
}

absl::StatusOr<volume::SnapshotInfo> VolumeAccess::TakeSnapshot(VolumeHold hold,
                                                                const std::string& snapshot) {
  if (hold.client != nullptr) return hold.client->TakeSnapshot(snapshot);
  absl::StatusOr<volume::SnapshotInfo> info = hold.volume->TakeSnapshot(snapshot);
  CloseIfFailed(hold.volume_id, std::move(hold.volume), info.status());
  return info;
}

absl::StatusOr<volume::SnapshotInfo> VolumeAccess::FindSnapshot(const std::string& id,
                                                                const std::string& snapshot) {
  const auto find = [&snapshot](auto& volume) { return volume.FindSnapshot(snapshot); };
  return Ask<absl::StatusOr<volume::SnapshotInfo>>(id, find, find);
}

absl::Status VolumeAccess::DeleteSnapshot(const std::string& id, const std::string& snapshot,
                                          const std::optional<volume::MarkLimits>& marks) {
  const auto remove = [&](auto& volume) { return volume.DeleteSnapshot(snapshot, marks); };
  return Ask<absl::Status>(id, remove, remove);
}

absl::Status VolumeAccess::Resize(const std::string& id, uint64_t capacity) {
  const auto resize = [capacity](auto& volume) { return volume.Resize(capacity); };
  return Ask<absl::Status>(id, resize, resize);
}

absl::Status VolumeAccess::Discard(const std::string& id) {
  struct stat data = {};
  if (::stat((catalog_.VolumeDirectory(id) + "/data").c_str(), &data) == 0 && data.st_blocks == 0) {
    return absl::OkStatus();
  }
  const absl::StatusOr<Shared> volume = Open(id);
  if (!volume.ok()) return volume.status();
  if ((*volume)->status().copying > 0) {
    return absl::UnavailableError("a snapshot of the volume is still being copied");
  }
  return (*volume)->Trim({0, (*volume)->capacity()}, volume::Durability::kFlushed);
}

}  // namespace cbt::driver
