#include "volume/snapshot_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
#include "base/file_io.h"
#include "map/folder/manifest_bytes.h"
#include "volume/file_copy.h"
#include "volume/volume_folder.h"

namespace cbt::volume {
namespace {

constexpr ManifestKind kCopyKind = {.magic = {0x89, 'C', 'B', 'P', '\r', '\n', 0x1a, '\n'},
                                    .major = 1,
                                    .minor = 0,
                                    .owner = "copy"};

// The header has this place for itself.
constexpr uint64_t kHeaderBytes = 4096;

constexpr size_t kBootBytes = 36;

// Instead of the boot's id: everything is on disk.
const std::string& AnyBoot() {
  static const std::string* const any = new std::string(kBootBytes, '*');
  return *any;
}

// The kernel's id of this boot; question marks if it can't be read, and then nothing is resumed.
std::string CurrentBoot() {
  const OwnedDescriptor file(OpenFile("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::string boot(kBootBytes, '\0');
  if (!file.has_value() ||
      Retry([&] { return ::read(file.number(), boot.data(), boot.size()); }) != kBootBytes) {
    return std::string(kBootBytes, '?');
  }
  return boot;
}

std::string CopiedName(const std::string& name) {
  return absl::StrCat(name, AbslView(kCopiedSuffix));
}

absl::StatusOr<OwnedDescriptor> MakeFile(const Folder& folder, const std::string& name) {
  if (!folder.Remove(name.c_str())) return FileError(folder.Shown(name), errno);
  OwnedDescriptor file(Retry([&] {
    return ::openat(folder.descriptor(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                    S_IRUSR | S_IWUSR | S_IRGRP);
  }));
  if (!file.has_value()) return FileError(folder.Shown(name), errno);
  return file;
}

}  // namespace

SnapshotCopy::SnapshotCopy(const Folder& copying, const std::string& name, SnapshotInfo info,
                           int data)
    : copying_(copying),
      name_(name),
      info_(std::move(info)),
      data_(data),
      states_(BlockCount(info_.size, kRegionBytes)) {}

absl::Status SnapshotCopy::FileErrorOf(int error) const {
  return FileError(copying_.Shown(name_), error);
}

absl::Status SnapshotCopy::WriteHeader(const std::string& boot) {
  ManifestWriter writer(kCopyKind);
  writer.Text(boot);
  writer.Number(info_.created_ns);
  writer.Number(info_.size);
  writer.Number(kRegionBytes);
  const std::vector<uint8_t> bytes = std::move(writer).Finish();
  const auto size = static_cast<uint32_t>(bytes.size());
  std::vector<uint8_t> header = {static_cast<uint8_t>(size), static_cast<uint8_t>(size >> 8)};
  header.insert(header.end(), bytes.begin(), bytes.end());
  if (const int error = WriteAt(copied_.number(), header, 0); error != 0) {
    return FileErrorOf(error);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SnapshotCopy>> SnapshotCopy::Begin(const Folder& copying,
                                                                  const std::string& name,
                                                                  uint64_t size, int64_t created_ns,
                                                                  int data) {
  std::shared_ptr<SnapshotCopy> copy(new SnapshotCopy(
      copying, name,
      {.id = std::string(IdOf(name)), .created_ns = created_ns, .size = size, .ready = false},
      data));
  // The list of regions first: a copy without one is not continued.
  absl::StatusOr<OwnedDescriptor> copied = MakeFile(copying, CopiedName(name));
  if (!copied.ok()) return copied.status();
  copy->copied_ = *std::move(copied);
  absl::StatusOr<OwnedDescriptor> target = MakeFile(copying, name);
  if (!target.ok()) return target.status();
  copy->copy_ = *std::move(target);
  // Space for the list is taken now: running out of it later would end the copy.
  const uint64_t listed = kHeaderBytes + copy->Regions();
  int error = ::posix_fallocate(copy->copied_.number(), 0, static_cast<off_t>(listed));
  if (error == 0 && ::ftruncate(copy->copy_.number(), static_cast<off_t>(size)) != 0) error = errno;
  absl::Status status = error == 0 ? copy->WriteHeader(CurrentBoot()) : copy->FileErrorOf(error);
  if (!status.ok()) {
    static_cast<void>(RemoveCopyFiles(copying, name));
    return status;
  }
  return copy;
}

// ABORTED if it is not the header of a copy.
absl::StatusOr<SnapshotCopy::Header> SnapshotCopy::ReadHeader(int list, const std::string& name) {
  std::vector<uint8_t> bytes(kHeaderBytes);
  const ssize_t got = Retry([&] { return ::pread(list, bytes.data(), bytes.size(), 0); });
  if (got < 0) return FileError(name, errno);
  const absl::Status lost =
      absl::AbortedError(absl::StrCat(name, ": the copy was interrupted and can't be continued"));
  const size_t size = static_cast<size_t>(bytes[0]) | static_cast<size_t>(bytes[1]) << 8;
  if (static_cast<size_t>(got) != bytes.size() || size > bytes.size() - 2) return lost;
  absl::StatusOr<ManifestReader> reader =
      ManifestReader::Open(std::span<const uint8_t>(bytes).subspan(2, size), kCopyKind, name);
  if (!reader.ok()) return lost;
  Header header{.boot = reader->Text(), .info = {.id = std::string(IdOf(name))}};
  header.info.created_ns = reader->Number<int64_t>();
  header.info.size = reader->Number<uint64_t>();
  const auto region_bytes = reader->Number<uint64_t>();
  if (!reader->ended() || region_bytes != kRegionBytes || header.info.size > kMaxCapacity) {
    return lost;
  }
  return header;
}

absl::StatusOr<SnapshotInfo> SnapshotCopy::ReadInfo(const Folder& copying,
                                                    const std::string& name) {
  const absl::StatusOr<OwnedDescriptor> list =
      copying.OpenFile(CopiedName(name), O_RDONLY | O_NOFOLLOW);
  if (!list.ok()) return list.status();
  absl::StatusOr<Header> header = ReadHeader(list->number(), name);
  if (absl::IsAborted(header.status())) return absl::NotFoundError(header.status().message());
  if (!header.ok()) return header.status();
  return header->info;
}

absl::StatusOr<std::shared_ptr<SnapshotCopy>> SnapshotCopy::Resume(const Folder& copying,
                                                                   const std::string& name,
                                                                   int data) {
  const std::string list = CopiedName(name);
  absl::StatusOr<OwnedDescriptor> copied = copying.OpenFile(list, O_RDWR | O_NOFOLLOW);
  if (!copied.ok()) return copied.status();
  absl::StatusOr<Header> header = ReadHeader(copied->number(), name);
  if (!header.ok()) return header.status();
  const absl::Status lost = absl::AbortedError(
      absl::StrCat(copying.Shown(name), ": the copy was interrupted and can't be continued"));
  const std::string& boot = header->boot;
  const std::string current = CurrentBoot();
  if (boot != AnyBoot() && (boot != current || current.front() == '?')) return lost;
  std::shared_ptr<SnapshotCopy> copy(new SnapshotCopy(copying, name, header->info, data));
  copy->copied_ = *std::move(copied);
  // Finish() may have come as far as to make it read-only.
  if (::fchmodat(copying.descriptor(), name.c_str(), S_IRUSR | S_IWUSR | S_IRGRP, 0) != 0) {
    return errno == ENOENT ? lost : FileError(copying.Shown(name), errno);
  }
  absl::StatusOr<OwnedDescriptor> target = copying.OpenFile(name, O_RDWR | O_NOFOLLOW);
  if (absl::IsNotFound(target.status())) return lost;
  if (!target.ok()) return target.status();
  copy->copy_ = *std::move(target);
  struct stat stat;
  if (::fstat(copy->copy_.number(), &stat) != 0) return FileError(copying.Shown(name), errno);
  if (static_cast<uint64_t>(stat.st_size) != copy->info_.size) return lost;

  std::vector<uint8_t> listed(copy->Regions());
  for (size_t done = 0; done < listed.size();) {
    const ssize_t count = Retry([&] {
      return ::pread(copy->copied_.number(), listed.data() + done, listed.size() - done,
                     static_cast<off_t>(kHeaderBytes + done));
    });
    if (count < 0) return FileError(copying.Shown(list), errno);
    if (count == 0) return lost;
    done += static_cast<size_t>(count);
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    copy->states_[i].store(listed[i] != 0 ? kDone : kWanted, std::memory_order_relaxed);
  }
  // From here on the list is newer than what is on disk.
  if (boot != current) {
    if (absl::Status status = copy->WriteHeader(current); !status.ok()) return status;
    if (::fdatasync(copy->copied_.number()) != 0) return FileError(copying.Shown(list), errno);
  }
  return copy;
}

// Makes sure that nothing resumes the copy before writers go on without it.
void SnapshotCopy::Fail(int error) noexcept {
  if (::ftruncate(copied_.number(), 0) != 0 && !copying_.Remove(CopiedName(name_).c_str()) &&
      !copying_.Remove(name_.c_str())) {
    stuck_.store(true);
  }
  int none = 0;
  failed_.compare_exchange_strong(none, error);
}

// True if the caller has to copy the region and end with kDone.
bool SnapshotCopy::Claim(uint64_t region) noexcept {
  uint8_t wanted = kWanted;
  return states_[region].load(std::memory_order_acquire) == kWanted &&
         states_[region].compare_exchange_strong(wanted, kBusy, std::memory_order_acq_rel);
}

// Requires: the caller has claimed the regions [begin, end). `hole`: there is nothing to copy.
void SnapshotCopy::CopyRegions(uint64_t begin, uint64_t end, bool hole) noexcept {
  const uint64_t first = begin * kRegionBytes;
  const uint64_t last = std::min(info_.size, end * kRegionBytes);
  int error = hole || failed() != 0
                  ? 0
                  : CopyRange(data_, copy_.number(), {.offset = first, .length = last - first});
  // Before a write can be issued, so that a copy that is continued never takes the new contents.
  static constexpr uint8_t kListed[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (uint64_t at = begin; at < end && error == 0 && failed() == 0;) {
    const uint64_t count = std::min<uint64_t>(end - at, sizeof(kListed));
    error = WriteAt(copied_.number(), {kListed, static_cast<size_t>(count)}, kHeaderBytes + at);
    at += count;
  }
  if (error != 0) Fail(error);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (uint64_t region = begin; region < end; ++region) {
      states_[region].store(kDone, std::memory_order_release);
    }
  }
  region_done_.notify_all();
}

int SnapshotCopy::Preserve(Extent extent) noexcept {
  if (extent.length == 0 || extent.offset >= info_.size) return 0;
  const uint64_t begin = extent.offset / kRegionBytes;
  const uint64_t end = (std::min(extent.end(), info_.size) - 1) / kRegionBytes + 1;
  for (uint64_t region = begin; region < end; ++region) {
    if (Claim(region)) CopyRegions(region, region + 1, false);
  }
  // Those that other threads have claimed.
  for (uint64_t region = begin; region < end; ++region) {
    if (states_[region].load(std::memory_order_acquire) == kDone) continue;
    std::unique_lock<std::mutex> lock(mutex_);
    region_done_.wait(lock, [&] { return states_[region].load() == kDone; });
  }
  return stuck_.load() ? EIO : 0;
}

bool SnapshotCopy::Continue(uint64_t regions) noexcept {
  for (uint64_t i = 0; i < regions && next_ < Regions() && failed() == 0; ++i) {
    if (!Claim(next_)) {
      ++next_;
      continue;
    }
    // Regions of a hole need only be listed. A region that a writer fills meanwhile is claimed by
    // the writer first, so whatever can be claimed here has not been written to.
    const uint64_t first = next_ * kRegionBytes;
    DataRun run;
    if (const int error = FindRun(data_, {first, info_.size - first}, run); error != 0) {
      Fail(error);
      run = {first, false};
    }
    uint64_t end = next_ + 1;
    const bool hole = run.hole && (run.end == info_.size || run.end >= end * kRegionBytes);
    const uint64_t holes = run.end == info_.size ? Regions() : run.end / kRegionBytes;
    while (hole && end < holes && Claim(end)) ++end;
    CopyRegions(next_, end, hole);
    next_ = end;
  }
  return next_ < Regions() && failed() == 0;
}

absl::Status SnapshotCopy::Finish() {
  if (failed() != 0) return FileErrorOf(failed());
  // A writer may still be copying a region.
  {
    std::unique_lock<std::mutex> lock(mutex_);
    for (const std::atomic<uint8_t>& state : states_) {
      region_done_.wait(lock, [&] { return state.load() == kDone; });
    }
  }
  int error = failed();
  const timespec created = ToTimespec(info_.created_ns);
  const timespec times[2] = {created, created};
  if (error == 0 && ::futimens(copy_.number(), times) != 0) error = errno;
  if (error == 0 && ::fchmod(copy_.number(), S_IRUSR | S_IRGRP) != 0) error = errno;
  if (error == 0 && ::fsync(copy_.number()) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : FileErrorOf(error);
}

absl::Status SnapshotCopy::Suspend() {
  if (failed() != 0) return FileErrorOf(failed());
  for (const int file : {copy_.number(), copied_.number()}) {
    if (::fsync(file) != 0) return FileErrorOf(errno);
  }
  if (absl::Status status = WriteHeader(AnyBoot()); !status.ok()) return status;
  if (::fdatasync(copied_.number()) != 0) return FileErrorOf(errno);
  return absl::OkStatus();
}

bool RemoveCopyFiles(const Folder& copying, const std::string& name) noexcept {
  const bool listed = copying.Remove(CopiedName(name).c_str());
  return copying.Remove(name.c_str()) || listed;
}

}  // namespace cbt::volume
