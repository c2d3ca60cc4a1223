#include "programs/volume/volume_history.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <set>
#include <utility>

#include "map/chain/chain_access.h"

namespace cbt::volume {

absl::Status VolumeHistory::OpenChain(const Directory& volume) {
  const absl::StatusOr<Directory> directory = volume.OpenDirectory(kChainName);
  if (!directory.ok()) return directory.status();
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      OpenChainIn(*directory, ChangeChain::Access::kChange);
  if (!chain.ok()) return chain.status();
  chain_ = *std::move(chain);
  return absl::OkStatus();
}

void VolumeHistory::Close() {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  chain_.reset();
}

std::vector<SnapshotInfo> VolumeHistory::snapshots() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<SnapshotInfo> infos;
  infos.reserve(records_.size());
  for (const SnapshotRecord& record : records_) infos.push_back(record.info);
  return infos;
}

std::vector<SnapshotMark> VolumeHistory::marks() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<SnapshotMark> marks;
  marks.reserve(marks_.list().size());
  for (const MarkRecord& record : marks_.list()) marks.push_back(record.mark);
  return marks;
}

// Requires: the lock, or that nothing changes.
const SnapshotRecord* VolumeHistory::FindRecord(std::string_view id) const noexcept {
  const auto found = std::find_if(records_.begin(), records_.end(),
                                  [id](const auto& record) { return record.info.id == id; });
  return found == records_.end() ? nullptr : &*found;
}

absl::StatusOr<SnapshotRecord> VolumeHistory::Find(std::string_view id) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const SnapshotRecord* const record = FindRecord(id);
  if (record == nullptr) return NoSnapshot(id);
  return *record;
}

absl::StatusOr<SnapshotRecord> VolumeHistory::FindReady(std::string_view id) const {
  absl::StatusOr<SnapshotRecord> record = Find(id);
  if (record.ok() && !record->info.ready) return NotReady(id);
  return record;
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeHistory::Delta(std::string_view base,
                                                                   std::string_view target) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  if (chain_ == nullptr) return absl::FailedPreconditionError("the volume is closed");
  const absl::StatusOr<std::string> from = NameOfBase(base, records_, marks_.list());
  if (!from.ok()) return from.status();
  const SnapshotRecord* const to = FindRecord(target);
  if (to == nullptr) return NoSnapshot(target);
  if (!to->info.ready) return NotReady(target);
  return chain_->Delta(*from, to->name);
}

bool VolumeHistory::HasRecord(std::string_view name) const noexcept {
  // Mostly it is one of the newest.
  return std::any_of(records_.rbegin(), records_.rend(),
                     [name](const auto& record) { return record.name == name; });
}

void VolumeHistory::SetRecords(std::vector<SnapshotRecord> records) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  std::swap(records_, records);
  all_suspects_ = true;
}

absl::Status VolumeHistory::Append(const ChangeMap& map, const std::string& name,
                                   const std::optional<SnapshotInfo>& info) {
  const bool recorded = HasRecord(name);
  suspects_.push_back(name);
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  // An Append() that failed only while it was synced has put it into the chain nevertheless.
  if (!chain_->Contains(name)) {
    const auto time = info.has_value() ? std::optional(info->created_ns) : std::nullopt;
    if (absl::Status status = chain_->Append(map, time); !status.ok()) return status;
  }
  if (info.has_value() && !recorded) records_.push_back({name, *info});
  return absl::OkStatus();
}

void VolumeHistory::SetReady(std::string_view name) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  for (SnapshotRecord& record : records_) {
    if (record.name == name) record.info.ready = true;
  }
}

void VolumeHistory::EraseRecord(std::string_view name) {
  suspects_.emplace_back(name);
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  std::erase_if(records_, [name](const SnapshotRecord& record) { return record.name == name; });
}

void VolumeHistory::SuspectAll() {
  std::set<std::string_view> kept;
  for (const SnapshotRecord& record : records_) kept.insert(record.name);
  for (const MarkRecord& record : marks_.list()) kept.insert(record.name);
  suspects_.clear();
  for (ChainSnapshot& entry : chain_->snapshots()) {
    if (!kept.contains(entry.id)) suspects_.push_back(std::move(entry.id));
  }
  all_suspects_ = false;
}

absl::Status VolumeHistory::RemoveHidden() {
  for (std::string& name : marks_.TakeRemoved()) suspects_.push_back(std::move(name));
  if (all_suspects_) SuspectAll();
  std::vector<std::string> left;
  absl::Status status;
  for (std::string& name : suspects_) {
    const bool marked = std::any_of(marks_.list().begin(), marks_.list().end(),
                                    [&](const MarkRecord& record) { return record.name == name; });
    if (marked || HasRecord(name) || !chain_->Contains(name)) continue;
    if (status.ok() && name != chain_->newest().id) {
      const std::unique_lock<std::shared_mutex> lock(mutex_);
      status = chain_->Remove(name);
      if (status.ok()) continue;
    }
    left.push_back(std::move(name));
  }
  suspects_ = std::move(left);
  return status;
}

}  // namespace cbt::volume
