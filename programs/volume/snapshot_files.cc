#include "programs/volume/snapshot_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "programs/volume/file_copy.h"

namespace cbt::volume {
namespace {

// Holds the gate for a scope, and keeps the longest time for which that was done.
class TimedHold {
 public:
  TimedHold(WriteGate& gate, std::atomic<uint64_t>& longest)
      : longest_(longest), begin_(std::chrono::steady_clock::now()), hold_(std::in_place, gate) {}
  ~TimedHold() {
    hold_.reset();
    const auto held = std::chrono::steady_clock::now() - begin_;
    const auto held_ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(held).count());
    longest_.store(std::max(longest_.load(), held_ns));
  }
  TimedHold(const TimedHold&) = delete;
  TimedHold& operator=(const TimedHold&) = delete;

 private:
  std::atomic<uint64_t>& longest_;
  const std::chrono::steady_clock::time_point begin_;
  std::optional<GateHold> hold_;
};

}  // namespace

int64_t Now() noexcept {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return ToNanoseconds(now);
}

absl::Status SnapshotFiles::Open(const Directory& volume) {
  for (auto [name, place] :
       {std::pair(kSnapshotsName, &files_), std::pair(kCopyingName, &copying_)}) {
    absl::StatusOr<Directory> opened = volume.OpenDirectory(name);
    if (!opened.ok()) return opened.status();
    *place = std::make_unique<const Directory>(*std::move(opened));
  }
  return absl::OkStatus();
}

absl::Status SnapshotFiles::ResumeCopies(int data, const absl::Status& replaced, const Note& note) {
  // A killed process may have removed a copy without waiting for the disk. It must not come back
  // when a later one has its name.
  if (absl::Status status = copying_->Sync(); !status.ok()) return status;
  absl::StatusOr<std::vector<std::string>> names = copying_->List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (name.ends_with(kCopiedSuffix)) continue;
    absl::StatusOr<std::shared_ptr<SnapshotCopy>> copy =
        replaced.ok() ? SnapshotCopy::Resume(*copying_, name, data)
                      : absl::StatusOr<std::shared_ptr<SnapshotCopy>>(replaced);
    if (copy.ok()) {
      copies_.push_back(*std::move(copy));
    } else if (absl::IsAborted(copy.status()) || absl::IsNotFound(copy.status())) {
      note(copy.status());
      if (!RemoveCopyFiles(*copying_, name)) return FileError(copying_->Shown(name), errno);
    } else {
      return copy.status();
    }
  }
  for (const std::string& name : *names) {
    if (!name.ends_with(kCopiedSuffix)) continue;
    const std::string id = name.substr(0, name.size() - kCopiedSuffix.size());
    absl::StatusOr<bool> has = copying_->Has(id);
    if (!has.ok()) return has.status();
    if (!*has) copying_->Remove(name.c_str());
  }
  return absl::OkStatus();
}

absl::Status SnapshotFiles::KeepCopies(Copies kept) {
  std::swap(kept, copies_);
  for (const std::shared_ptr<SnapshotCopy>& copy : kept) {
    if (std::find(copies_.begin(), copies_.end(), copy) == copies_.end() &&
        !RemoveCopyFiles(*copying_, copy->name())) {
      return FileError(copying_->Shown(copy->name()), errno);
    }
  }
  return absl::OkStatus();
}

void SnapshotFiles::RemoveSuperseded(const std::vector<SnapshotRecord>& records,
                                     const Note& note) const {
  const absl::StatusOr<std::vector<std::string>> files = files_->List();
  if (!files.ok()) return note(files.status());
  std::set<std::string_view> names;
  std::set<std::string_view> ids;
  for (const SnapshotRecord& record : records) {
    names.insert(record.name);
    ids.insert(record.info.id);
  }
  for (const std::string& file : *files) {
    if (names.contains(file) || !ids.contains(IdOf(file))) continue;
    if (!files_->Remove(file.c_str())) note(FileError(files_->Shown(file), errno));
  }
}

absl::StatusOr<bool> SnapshotFiles::Has(const std::string& name) const {
  for (const std::shared_ptr<SnapshotCopy>& copy : copies_) {
    if (copy->name() == name) return true;
  }
  return files_->Has(name);
}

absl::StatusOr<SnapshotInfo> SnapshotFiles::InfoOf(const std::string& name) const {
  for (const std::shared_ptr<SnapshotCopy>& copy : copies_) {
    if (copy->name() == name) return copy->info();
  }
  return ReadSnapshotFile(*files_, name);
}

absl::StatusOr<OwnedDescriptor> SnapshotFiles::OpenFile(const std::string& name,
                                                        uint64_t size) const {
  absl::StatusOr<OwnedDescriptor> file = files_->OpenFile(name, O_RDONLY | O_NOFOLLOW);
  if (!file.ok()) return file.status();
  struct stat stat;
  if (::fstat(file->number(), &stat) != 0) return FileError(files_->Shown(name), errno);
  if (!S_ISREG(stat.st_mode) || static_cast<uint64_t>(stat.st_size) != size) {
    return absl::DataLossError(absl::StrCat(files_->Shown(name), ": has ", stat.st_size,
                                            " bytes, the snapshot had ", size));
  }
  return file;
}

absl::StatusOr<bool> SnapshotFiles::Clone(const std::string& name, int data) {
  copying_->Remove(name.c_str());
  const OwnedDescriptor clone(Retry([&] {
    return ::openat(copying_->descriptor(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                    S_IRUSR | S_IWUSR | S_IRGRP);
  }));
  if (!clone.has_value()) return FileError(copying_->Shown(name), errno);
  int error = 0;
  int64_t created_ns = 0;
  {
    const TimedHold hold(gate_, longest_hold_ns_);
    created_ns = Now();
    error = CloneFile(data, clone.number());
  }
  const bool cannot = CannotClone(error);
  const timespec created = ToTimespec(created_ns);
  const timespec times[2] = {created, created};
  if (error == 0 && ::futimens(clone.number(), times) != 0) error = errno;
  if (error == 0 && ::fchmod(clone.number(), S_IRUSR | S_IRGRP) != 0) error = errno;
  if (error == 0 && ::fsync(clone.number()) != 0) error = errno;
  if (error == 0 &&
      ::renameat(copying_->descriptor(), name.c_str(), files_->descriptor(), name.c_str()) != 0) {
    error = errno;
  }
  if (error == 0) {
    clones_.store(true);
    return true;
  }
  copying_->Remove(name.c_str());
  if (cannot) return false;
  return FileError(copying_->Shown(name), error);
}

absl::Status SnapshotFiles::BeginCopy(const std::string& name, uint64_t size, int data) {
  absl::StatusOr<std::shared_ptr<SnapshotCopy>> copy =
      SnapshotCopy::Begin(*copying_, name, size, Now(), data);
  if (!copy.ok()) return copy.status();
  Copies copies = copies_;
  copies.push_back(*std::move(copy));
  SetCopies(std::move(copies));
  return absl::OkStatus();
}

// Both names: the snapshot's, and the one that is gone.
absl::Status SnapshotFiles::SyncNames() const {
  absl::Status status = files_->Sync();
  return status.ok() ? copying_->Sync() : status;
}

void SnapshotFiles::SetCopies(Copies copies) {
  const TimedHold hold(gate_, longest_hold_ns_);
  copies_ = std::move(copies);
}

absl::Status SnapshotFiles::Publish(const SnapshotCopy& copy) const {
  const std::string& name = copy.name();
  if (::renameat(copying_->descriptor(), name.c_str(), files_->descriptor(), name.c_str()) != 0) {
    return FileError(copying_->Shown(name), errno);
  }
  if (absl::Status status = files_->Sync(); !status.ok()) return status;
  // Not before: a copy that is found without its list is dropped. And for good: a later copy may
  // have this name. If it can't be removed, the next Open() or copy removes it.
  copying_->Remove(CopiedName(name).c_str());
  return copying_->Sync();
}

void SnapshotFiles::Forget(const std::shared_ptr<SnapshotCopy>& copy) {
  Copies copies = copies_;
  std::erase(copies, copy);
  SetCopies(std::move(copies));
}

absl::Status SnapshotFiles::Remove(const std::string& name) {
  const auto found = std::find_if(copies_.begin(), copies_.end(),
                                  [&name](const auto& each) { return each->name() == name; });
  if (found != copies_.end()) {
    // As long as there are files, a kill brings the copy back, and writers must preserve regions.
    if (!RemoveCopyFiles(*copying_, name)) return FileError(copying_->Shown(name), errno);
    Forget(std::shared_ptr<SnapshotCopy>(*found));
    return absl::OkStatus();
  }
  // This also makes room for what the chain has to write, if the disk is full.
  if (!files_->Remove(name.c_str())) return FileError(files_->Shown(name), errno);
  return files_->Sync();
}

void SnapshotFiles::RemoveFile(const std::string& name) const { files_->Remove(name.c_str()); }

int SnapshotFiles::Preserve(Extent extent) const noexcept {
  int error = 0;
  for (const std::shared_ptr<SnapshotCopy>& copy : copies_) {
    if (error == 0) error = copy->Preserve(extent);
  }
  return error;
}

absl::Status SnapshotFiles::ErrorOfCopies(int error) const {
  return FileError(copying_->shown(), error);
}

}  // namespace cbt::volume
