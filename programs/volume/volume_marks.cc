#include "programs/volume/volume_marks.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/file_io.h"

namespace cbt::volume {

absl::Status VolumeMarks::Open(const Directory& volume) {
  absl::StatusOr<Directory> files = volume.MakeDirectory(kMarksName, /*sync=*/true);
  if (!files.ok()) return files.status();
  files_ = std::make_unique<const Directory>(*std::move(files));
  return absl::OkStatus();
}

absl::Status VolumeMarks::Load(const ChangeChain& chain,
                               const std::vector<SnapshotRecord>& snapshots,
                               const std::function<void(const absl::Status&)>& note) {
  absl::StatusOr<std::vector<MarkRecord>> marks = ReadMarks(chain, snapshots, *files_);
  if (!marks.ok()) return marks.status();
  list_ = *std::move(marks);
  const absl::StatusOr<std::vector<std::string>> files = files_->List();
  if (!files.ok()) return files.status();
  std::set<std::string_view> names;
  for (const MarkRecord& record : list_) names.insert(record.name);
  for (const std::string& file : *files) {
    if (!names.contains(file) && !files_->Remove(file.c_str())) {
      note(FileError(files_->Shown(file), errno));
    }
  }
  return absl::OkStatus();
}

absl::Status VolumeMarks::Write(const std::string& name) {
  return files_->Write(name, {}, /*sync=*/true);
}

void VolumeMarks::Add(const ChangeChain& chain, const std::string& name) {
  const std::vector<ChainSnapshot> entries = chain.snapshots();
  const auto place = [&entries](std::string_view each) {
    return std::find_if(entries.begin(), entries.end(),
                        [each](const ChainSnapshot& entry) { return entry.id == each; });
  };
  const auto entry = place(name);
  if (entry == entries.end()) return;
  const std::unique_lock<std::shared_mutex> lock(lock_);
  const auto at = std::find_if(list_.begin(), list_.end(), [&](const MarkRecord& record) {
    return place(record.name) > entry;
  });
  list_.insert(
      at,
      {name, {.id = std::string(IdOf(name)), .created_ns = entry->time, .size = entry->capacity}});
}

absl::Status VolumeMarks::RemoveIf(const std::function<bool(const MarkRecord&)>& is_removed) {
  for (size_t i = 0; i < list_.size();) {
    const std::string& name = list_[i].name;
    if (!is_removed(list_[i])) {
      ++i;
      continue;
    }
    removed_.push_back(name);
    if (!files_->Remove(name.c_str())) {
      return FileError(files_->Shown(name), errno);
    }
    const std::unique_lock<std::shared_mutex> lock(lock_);
    list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return absl::OkStatus();
}

absl::Status VolumeMarks::Remove(std::string_view id) {
  return RemoveIf([id](const MarkRecord& record) { return record.mark.id == id; });
}

absl::Status VolumeMarks::Limit(const ChangeChain& chain, const MarkLimits& limits,
                                int64_t now_ns) {
  const std::vector<ChainSnapshot> entries = chain.snapshots();
  const std::vector<uint64_t> bytes = chain.MapBytes();
  std::map<std::string_view, uint64_t> costs;
  for (size_t i = 0; i + 1 < entries.size(); ++i) costs[entries[i].id] = bytes[i + 1];
  uint64_t left = list_.size();
  uint64_t total = 0;
  for (const MarkRecord& record : list_) total += costs[record.name];
  const int64_t oldest = now_ns - std::chrono::nanoseconds(limits.age).count();
  return RemoveIf([&](const MarkRecord& record) {
    const bool aged = record.mark.created_ns.has_value() && *record.mark.created_ns < oldest;
    if (!aged && left <= limits.count && total <= limits.bytes) return false;
    --left;
    total -= costs[record.name];
    return true;
  });
}

}  // namespace cbt::volume
