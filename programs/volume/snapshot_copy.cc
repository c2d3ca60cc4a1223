#include "programs/volume/snapshot_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/manifest_bytes.h"
#include "base/text.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/volume_directory.h"

namespace cbt::volume {
namespace {

constexpr ManifestKind kCopyKind = {.magic = {0x89, 'C', 'B', 'P', '\r', '\n', 0x1a, '\n'},
                                    .major = 1,
                                    .minor = 0,
                                    .owner = "copy"};

// The header has this place for itself.
constexpr uint64_t kHeaderBytes = 4096;

// Stands where earlier releases wrote the id of the boot under which their list was valid. Theirs
// is not: it could be on disk before the copy was.
const std::string& AnyBoot() {
  static const std::string* const any = new std::string(36, '*');
  return *any;
}

absl::Status CannotContinue(std::string_view name) {
  return absl::AbortedError(
      absl::StrCat(AbslView(name), ": the copy was interrupted and can't be continued"));
}

absl::StatusOr<OwnedDescriptor> MakeFile(const Directory& directory, const std::string& name) {
  OwnedDescriptor file(Retry([&] {
    return ::openat(directory.descriptor(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                    S_IRUSR | S_IWUSR | S_IRGRP);
  }));
  if (!file.has_value()) return FileError(directory.Shown(name), errno);
  return file;
}

}  // namespace

std::string CopiedName(const std::string& name) {
  return absl::StrCat(name, AbslView(kCopiedSuffix));
}

SnapshotCopy::SnapshotCopy(const Directory& copying, const std::string& name, SnapshotInfo info,
                           int data)
    : copying_(copying),
      name_(name),
      info_(std::move(info)),
      data_(data),
      states_(BlockCount(info_.size, kRegionBytes)) {}

absl::Status SnapshotCopy::FileErrorOf(int error) const {
  return FileError(copying_.Shown(name_), error);
}

// The header, and no region. Written rather than reserved: the list must not run out of space when
// a write waits for it.
absl::Status SnapshotCopy::WriteList() {
  ManifestWriter writer(kCopyKind);
  writer.Text(AnyBoot());
  writer.Number(info_.created_ns);
  writer.Number(info_.size);
  writer.Number(kRegionBytes);
  const std::vector<uint8_t> bytes = std::move(writer).Finish();
  const auto size = static_cast<uint32_t>(bytes.size());
  std::vector<uint8_t> list = {static_cast<uint8_t>(size), static_cast<uint8_t>(size >> 8)};
  list.insert(list.end(), bytes.begin(), bytes.end());
  list.resize(kHeaderBytes + CountOfRegions());
  if (const int error = WriteAt(copied_.number(), list, 0); error != 0) return FileErrorOf(error);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SnapshotCopy>> SnapshotCopy::Begin(const Directory& copying,
                                                                  const std::string& name,
                                                                  uint64_t size, int64_t created_ns,
                                                                  int data) {
  std::shared_ptr<SnapshotCopy> copy(new SnapshotCopy(
      copying, name,
      {.id = std::string(IdOf(name)), .created_ns = created_ns, .size = size, .ready = false},
      data));
  // An earlier copy of this name must not come back with a list of its own.
  if (!RemoveCopyFiles(copying, name)) return copy->FileErrorOf(errno);
  // The list of regions first: a copy without one is not continued.
  absl::StatusOr<OwnedDescriptor> copied = MakeFile(copying, CopiedName(name));
  if (!copied.ok()) return copied.status();
  copy->copied_ = *std::move(copied);
  absl::StatusOr<OwnedDescriptor> target = MakeFile(copying, name);
  if (!target.ok()) return target.status();
  copy->copy_ = *std::move(target);
  absl::Status status = copy->WriteList();
  if (status.ok() && (::ftruncate(copy->copy_.number(), static_cast<off_t>(size)) != 0 ||
                      ::fsync(copy->copy_.number()) != 0 || ::fsync(copy->copied_.number()) != 0)) {
    status = copy->FileErrorOf(errno);
  }
  if (!status.ok()) {
    static_cast<void>(RemoveCopyFiles(copying, name));
    return status;
  }
  return copy;
}

// ABORTED if it is not the header of a copy that can be continued.
absl::StatusOr<SnapshotInfo> SnapshotCopy::ReadHeader(int list, const std::string& name) {
  std::vector<uint8_t> bytes(kHeaderBytes);
  const ssize_t got = Retry([&] { return ::pread(list, bytes.data(), bytes.size(), 0); });
  if (got < 0) return FileError(name, errno);
  const size_t size = static_cast<size_t>(bytes[0]) | static_cast<size_t>(bytes[1]) << 8;
  if (static_cast<size_t>(got) != bytes.size() || size > bytes.size() - 2) {
    return CannotContinue(name);
  }
  absl::StatusOr<ManifestReader> reader =
      ManifestReader::Open(std::span<const uint8_t>(bytes).subspan(2, size), kCopyKind, name);
  if (!reader.ok()) return CannotContinue(name);
  const std::string boot = reader->Text();
  SnapshotInfo info{.id = std::string(IdOf(name))};
  info.created_ns = reader->Number<int64_t>();
  info.size = reader->Number<uint64_t>();
  const auto region_bytes = reader->Number<uint64_t>();
  if (!reader->ended() || boot != AnyBoot() || region_bytes != kRegionBytes ||
      info.size > kMaxCapacity) {
    return CannotContinue(name);
  }
  return info;
}

absl::StatusOr<SnapshotInfo> SnapshotCopy::ReadInfo(const Directory& copying,
                                                    const std::string& name) {
  const absl::StatusOr<OwnedDescriptor> list =
      copying.OpenFile(CopiedName(name), O_RDONLY | O_NOFOLLOW);
  if (!list.ok()) return list.status();
  absl::StatusOr<SnapshotInfo> info = ReadHeader(list->number(), name);
  if (absl::IsAborted(info.status())) return absl::NotFoundError(info.status().message());
  return info;
}

absl::StatusOr<std::shared_ptr<SnapshotCopy>> SnapshotCopy::Resume(const Directory& copying,
                                                                   const std::string& name,
                                                                   int data) {
  const std::string list = CopiedName(name);
  absl::StatusOr<OwnedDescriptor> copied = copying.OpenFile(list, O_RDWR | O_NOFOLLOW);
  if (!copied.ok()) return copied.status();
  absl::StatusOr<SnapshotInfo> info = ReadHeader(copied->number(), name);
  if (!info.ok()) return info.status();
  std::shared_ptr<SnapshotCopy> copy(new SnapshotCopy(copying, name, *std::move(info), data));
  copy->copied_ = *std::move(copied);
  // Finish() may have come as far as to make it read-only.
  if (::fchmodat(copying.descriptor(), name.c_str(), S_IRUSR | S_IWUSR | S_IRGRP, 0) != 0) {
    return errno == ENOENT ? CannotContinue(name) : FileError(copying.Shown(name), errno);
  }
  absl::StatusOr<OwnedDescriptor> target = copying.OpenFile(name, O_RDWR | O_NOFOLLOW);
  if (absl::IsNotFound(target.status())) return CannotContinue(name);
  if (!target.ok()) return target.status();
  copy->copy_ = *std::move(target);
  struct stat stat;
  if (::fstat(copy->copy_.number(), &stat) != 0) return FileError(copying.Shown(name), errno);
  if (static_cast<uint64_t>(stat.st_size) != copy->info_.size) return CannotContinue(name);

  std::vector<uint8_t> listed(copy->CountOfRegions());
  for (size_t done = 0; done < listed.size();) {
    const ssize_t count = Retry([&] {
      return ::pread(copy->copied_.number(), listed.data() + done, listed.size() - done,
                     static_cast<off_t>(kHeaderBytes + done));
    });
    if (count < 0) return FileError(copying.Shown(list), errno);
    if (count == 0) return CannotContinue(name);
    done += static_cast<size_t>(count);
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    copy->states_[i].store(listed[i] != 0 ? kDone : kWanted, std::memory_order_relaxed);
  }
  if (absl::Status status = copy->ClearUnlisted(); !status.ok()) return status;
  return copy;
}

// What an earlier process copied and did not list may be there in part.
absl::Status SnapshotCopy::ClearUnlisted() {
  for (uint64_t begin = 0; begin < CountOfRegions();) {
    uint64_t end = begin;
    while (end < CountOfRegions() && states_[end].load(std::memory_order_relaxed) == kWanted) ++end;
    const uint64_t first = begin * kRegionBytes;
    const uint64_t last = std::min(info_.size, end * kRegionBytes);
    if (begin < end) {
      const int error = PunchHole(copy_.number(), {first, last - first});
      if (error != 0 && !CannotAllocate(error)) return FileErrorOf(error);
      if (error != 0) target_ = CopyTarget::kAnything;
    }
    begin = end + 1;
  }
  return absl::OkStatus();
}

// Makes sure that nothing resumes the copy, now or after a loss of power, before writers go on
// without it.
void SnapshotCopy::Fail(int error) noexcept {
  const bool emptied = ::ftruncate(copied_.number(), 0) == 0 && ::fsync(copied_.number()) == 0;
  if (!emptied && !RemoveCopyFiles(copying_, name_)) stuck_.store(true);
  int none = 0;
  failed_.compare_exchange_strong(none, error);
}

// True if the caller has to copy the region.
bool SnapshotCopy::Claim(uint64_t region) noexcept {
  uint8_t wanted = kWanted;
  return states_[region].load(std::memory_order_acquire) == kWanted &&
         states_[region].compare_exchange_strong(wanted, kBusy, std::memory_order_acq_rel);
}

bool SnapshotCopy::AllAre(Regions regions, State least) const noexcept {
  for (uint64_t region = regions.begin; region < regions.end; ++region) {
    if (states_[region].load(std::memory_order_acquire) < least) return false;
  }
  return true;
}

// Requires: the caller has claimed the regions. `hole`: there is nothing to copy.
void SnapshotCopy::CopyRegions(Regions regions, bool hole) noexcept {
  const uint64_t first = regions.begin * kRegionBytes;
  const uint64_t last = std::min(info_.size, regions.end * kRegionBytes);
  if ((!hole || target_ != CopyTarget::kZeros) && failed() == 0) {
    const int error =
        CopyRange(data_, copy_.number(), {.offset = first, .length = last - first}, target_);
    if (error != 0) Fail(error);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  while (count_since_ == copied_since_.size()) List(lock);
  copied_since_[count_since_++] = regions;
  for (uint64_t region = regions.begin; region < regions.end; ++region) {
    states_[region].store(kCopied, std::memory_order_release);
  }
  changed_.notify_all();
}

// Lists what has been copied, or waits while another thread does that. Requires: the lock of
// mutex_, which is released meanwhile; something has been copied, or another thread lists it.
void SnapshotCopy::List(std::unique_lock<std::mutex>& lock) noexcept {
  if (listing_) return changed_.wait(lock, [this] { return !listing_; });
  listing_ = true;
  std::swap(copied_since_, being_listed_);
  const std::span<const Regions> copied(being_listed_.data(), std::exchange(count_since_, 0));
  lock.unlock();
  if (failed() == 0) {
    if (const int error = SyncAndList(copied); error != 0) Fail(error);
  }
  lock.lock();
  for (const Regions& regions : copied) {
    for (uint64_t region = regions.begin; region < regions.end; ++region) {
      states_[region].store(kDone, std::memory_order_release);
    }
  }
  listing_ = false;
  changed_.notify_all();
}

// Called by one thread at a time. Returns 0 or an error number.
int SnapshotCopy::SyncAndList(std::span<const Regions> copied) noexcept {
  if (Retry([this] { return ::fdatasync(copy_.number()); }) != 0) return errno;
  static constexpr std::array<uint8_t, 256> kListed = [] {
    std::array<uint8_t, 256> listed = {};
    listed.fill(1);
    return listed;
  }();
  for (const Regions& regions : copied) {
    for (uint64_t at = regions.begin; at < regions.end;) {
      const uint64_t count = std::min<uint64_t>(regions.end - at, kListed.size());
      const int error = WriteAt(copied_.number(), {kListed.data(), static_cast<size_t>(count)},
                                kHeaderBytes + at);
      if (error != 0) return error;
      at += count;
    }
  }
  return Retry([this] { return ::fdatasync(copied_.number()); }) == 0 ? 0 : errno;
}

int SnapshotCopy::Preserve(Extent extent) noexcept {
  if (extent.length == 0 || extent.offset >= info_.size) return 0;
  const Regions regions{extent.offset / kRegionBytes,
                        (std::min(extent.end(), info_.size) - 1) / kRegionBytes + 1};
  if (!AllAre(regions, kDone)) {
    for (uint64_t region = regions.begin; region < regions.end; ++region) {
      if (Claim(region)) CopyRegions({region, region + 1}, false);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    // Those that other threads have claimed.
    changed_.wait(lock, [&] { return AllAre(regions, kCopied); });
    while (!AllAre(regions, kDone)) List(lock);
  }
  return stuck_.load() ? EIO : 0;
}

bool SnapshotCopy::Continue(uint64_t regions) noexcept {
  for (uint64_t i = 0; i < regions && next_ < CountOfRegions() && failed() == 0; ++i) {
    if (!Claim(next_)) {
      ++next_;
      continue;
    }
    // Regions of a hole need only be listed. A region that a writer fills meanwhile is claimed by
    // the writer first, so whatever can be claimed here has not been written to.
    const uint64_t first = next_ * kRegionBytes;
    // Within data that was found before, the file system is not asked again: it may look at all of
    // it up to the hole.
    DataRun run = {data_end_, false};
    if (first >= data_end_) {
      if (const int error = FindRun(data_, {first, info_.size - first}, run); error != 0) {
        Fail(error);
        run = {first, false};
      }
      if (!run.hole) data_end_ = run.end;
    }
    uint64_t end = next_ + 1;
    const bool hole = run.hole && (run.end == info_.size || run.end >= end * kRegionBytes);
    const uint64_t holes = run.end == info_.size ? CountOfRegions() : run.end / kRegionBytes;
    while (hole && end < holes && Claim(end)) ++end;
    CopyRegions({next_, end}, hole);
    // Begins to write now, so that the sync below, which writers may wait for, has less left to do.
    static_cast<void>(::sync_file_range(copy_.number(), static_cast<off64_t>(first),
                                        static_cast<off64_t>((end - next_) * kRegionBytes),
                                        SYNC_FILE_RANGE_WRITE));
    next_ = end;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  while (count_since_ > 0 || listing_) List(lock);
  return next_ < CountOfRegions() && failed() == 0;
}

absl::Status SnapshotCopy::Finish() {
  if (failed() != 0) return FileErrorOf(failed());
  // A writer may still be copying a region.
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return AllAre({0, CountOfRegions()}, kDone); });
  }
  int error = failed();
  const timespec created = ToTimespec(info_.created_ns);
  const timespec times[2] = {created, created};
  if (error == 0 && ::futimens(copy_.number(), times) != 0) error = errno;
  if (error == 0 && ::fchmod(copy_.number(), S_IRUSR | S_IRGRP) != 0) error = errno;
  if (error == 0 && ::fsync(copy_.number()) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : FileErrorOf(error);
}

bool RemoveCopyFiles(const Directory& copying, const std::string& name) noexcept {
  bool removed = false;
  int error = 0;
  // One of them is enough.
  size_t gone = 0;
  for (const std::string& file : {CopiedName(name), name}) {
    const bool unlinked = ::unlinkat(copying.descriptor(), file.c_str(), 0) == 0;
    removed |= unlinked;
    if (unlinked || errno == ENOENT) {
      ++gone;
    } else {
      error = errno;
    }
  }
  if (removed && Retry([&] { return ::fsync(copying.descriptor()); }) != 0) return false;
  if (gone == 0) errno = error;
  return gone > 0;
}

}  // namespace cbt::volume
