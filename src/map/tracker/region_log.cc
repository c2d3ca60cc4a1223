#include "map/tracker/region_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/directory.h"
#include "base/file_io.h"
#include "base/manifest_bytes.h"
#include "base/text.h"
#include "map/container.h"

namespace cbt {
namespace {

// docs/reference/format.md has the bytes.
constexpr std::array<uint8_t, 8> kLogMagic = {0x89, 'C', 'B', 'L', '\r', '\n', 0x1a, '\n'};
constexpr uint16_t kLogMajor = 2;
constexpr size_t kHeaderBytes = 12288;
constexpr size_t kChecksumAt = kHeaderBytes - 8;
constexpr size_t kFieldsAt = 16;
constexpr size_t kTrackerAt = 56;
constexpr size_t kNamesAt = 64;
constexpr size_t kRecordBytes = 16;

static_assert(kNamesAt + 2 * (2 + kMaxMapNameBytes) <= kChecksumAt);

template <typename T>
void Store(uint8_t* at, T number) noexcept {
  std::memcpy(at, &number, sizeof(number));
}

// The content of a place: 0, or a region's number plus 1.
constexpr uint64_t kEmpty = 0;

// Fills a place with `content` and a checksum that ties it to its log and place. Never all zeros,
// as a lost sector would be.
void StoreRecord(uint8_t* at, uint64_t seed, uint64_t place, uint64_t content) noexcept {
  std::array<uint8_t, 24> bytes;
  Store(bytes.data(), seed);
  Store(bytes.data() + 8, place);
  Store(bytes.data() + 16, content);
  Store(at, content);
  Store(at + 8, Checksum(bytes) | 1);
}

std::vector<uint8_t> EncodeHeader(const RegionLogHeader& header) {
  std::vector<uint8_t> bytes(kHeaderBytes);
  std::copy(kLogMagic.begin(), kLogMagic.end(), bytes.begin());
  Store(bytes.data() + 8, kLogMajor);
  Store(bytes.data() + kTrackerAt, header.tracker);
  uint8_t* at = bytes.data() + kFieldsAt;
  for (const uint64_t field : {header.geometry.capacity, header.geometry.granularity,
                               header.region_bytes, header.epoch, header.number}) {
    Store(at, field);
    at += sizeof(field);
  }
  at = bytes.data() + kNamesAt;
  for (const std::string* name : {&header.volume, &header.base}) {
    Store(at, static_cast<uint16_t>(name->size()));
    std::copy(name->begin(), name->end(), at + 2);
    at += 2 + name->size();
  }
  Store(bytes.data() + kChecksumAt, Checksum({bytes.data(), kChecksumAt}));
  return bytes;
}

}  // namespace

RegionLog::RegionLog(const Directory& directory, std::string name, OwnedDescriptor file,
                     uint64_t number, uint64_t seed, uint64_t regions)
    : directory_(directory),
      name_(std::move(name)),
      file_(std::move(file)),
      shown_(directory_.Shown(name_)),
      number_(number),
      seed_(seed),
      no_memory_(absl::ResourceExhaustedError(
          absl::StrCat(shown_, ": out of memory while writing to it"))),
      logged_(regions) {}

absl::StatusOr<std::shared_ptr<RegionLog>> RegionLog::Create(const Directory& directory,
                                                             const std::string& file,
                                                             const RegionLogHeader& header) {
  const std::vector<uint8_t> front = EncodeHeader(header);
  const uint64_t seed = LoadU64(front.data() + kChecksumAt);
  // Write a place for every region, not merely reserve it: the log must not run out of space when a
  // write waits for it.
  std::vector<uint8_t> places(header.regions() * kRecordBytes);
  for (uint64_t place = 0; place < header.regions(); ++place) {
    StoreRecord(places.data() + place * kRecordBytes, seed, place, kEmpty);
  }
  const std::span<const uint8_t> parts[] = {front, places};
  if (absl::Status status = directory.Write(file, parts, true); !status.ok()) return status;
  absl::StatusOr<OwnedDescriptor> opened = directory.OpenFile(file, O_WRONLY);
  if (!opened.ok()) return opened.status();
  return std::shared_ptr<RegionLog>(
      new RegionLog(directory, file, *std::move(opened), header.number, seed, header.regions()));
}

absl::StatusOr<RegionLog::Contents> RegionLog::Read(const Directory& directory,
                                                    const std::string& file) {
  absl::StatusOr<std::vector<uint8_t>> read =
      directory.Read(file, kHeaderBytes + kMaxRegions * kRecordBytes);
  if (!read.ok()) return read.status();
  const std::span<const uint8_t> bytes = *read;
  const auto damaged = [&](size_t at, const char* why) {
    return absl::DataLossError(absl::StrCat(directory.Shown(file), ": offset ", at, ": ", why));
  };
  if (bytes.size() < kHeaderBytes) return damaged(bytes.size(), "truncated header");
  if (!std::equal(kLogMagic.begin(), kLogMagic.end(), bytes.begin())) {
    return damaged(0, "not a region log (wrong magic number)");
  }
  if (const uint16_t major = LoadU16(bytes.data() + 8); major != kLogMajor) {
    return absl::UnimplementedError(
        absl::StrCat(directory.Shown(file), ": has version ", major,
                     " of the region-log format; this program reads version ", kLogMajor));
  }
  const uint64_t seed = LoadU64(bytes.data() + kChecksumAt);
  if (seed != Checksum(bytes.first(kChecksumAt))) {
    return damaged(kChecksumAt, "the header's checksum does not match");
  }
  Contents contents;
  contents.checksum = seed;
  RegionLogHeader& header = contents.header;
  const uint8_t* const fields = bytes.data() + kFieldsAt;
  header.geometry = {LoadU64(fields), LoadU64(fields + 8)};
  header.region_bytes = LoadU64(fields + 16);
  header.epoch = LoadU64(fields + 24);
  header.number = LoadU64(fields + 32);
  header.tracker = LoadU64(bytes.data() + kTrackerAt);
  const uint8_t* at = bytes.data() + kNamesAt;
  for (std::string* name : {&header.volume, &header.base}) {
    const size_t size = LoadU16(at);
    if (size > kMaxMapNameBytes) return damaged(kNamesAt, "the name is too long");
    name->assign(reinterpret_cast<const char*>(at) + 2, size);
    if (!IsUtf8(*name)) return damaged(kNamesAt, "the name is not UTF-8");
    at += 2 + size;
  }
  absl::Status geometry = CheckGeometry(header.geometry);
  if (!geometry.ok() || header.region_bytes == 0 || header.regions() > kMaxRegions) {
    return damaged(kFieldsAt, "the geometry is out of range");
  }

  // Records up to the first empty place, then only empty places.
  if (bytes.size() != kHeaderBytes + header.regions() * kRecordBytes) {
    contents.sound = false;
    return contents;
  }
  bool ended = false;
  std::array<uint8_t, kRecordBytes> right;
  for (uint64_t place = 0; place < header.regions(); ++place) {
    const uint8_t* const record = bytes.data() + kHeaderBytes + place * kRecordBytes;
    const uint64_t content = LoadU64(record);
    StoreRecord(right.data(), seed, place, content);
    if (!std::equal(right.begin(), right.end(), record) || content > header.regions() ||
        (ended && content != kEmpty)) {
      contents.sound = false;
      contents.regions.clear();
      return contents;
    }
    ended = content == kEmpty;
    if (!ended) contents.regions.push_back(content - 1);
  }
  return contents;
}

bool RegionLog::HasAll(uint64_t first, uint64_t last) const noexcept {
  for (uint64_t region = first; region <= last; ++region) {
    if (!Has(region)) return false;
  }
  return true;
}

absl::Status RegionLog::Add(uint64_t first, uint64_t last) {
  std::unique_lock<std::mutex> lock(mutex_);
  // Nothing drains the queue of a broken log.
  if (!failure_.ok()) return failure_;
  for (uint64_t region = first; region <= last; ++region) {
    if (!Has(region)) waiting_.push_back(region);
  }
  for (;;) {
    if (!failure_.ok()) return failure_;
    if (HasAll(first, last)) return absl::OkStatus();
    if (writing_) {
      written_.wait(lock);
      continue;
    }
    // This thread writes all queued regions, including its own.
    std::vector<uint64_t> regions = std::exchange(waiting_, {});
    std::sort(regions.begin(), regions.end());
    regions.erase(std::unique(regions.begin(), regions.end()), regions.end());
    std::erase_if(regions, [this](uint64_t region) { return Has(region); });
    writing_ = true;
    lock.unlock();
    absl::Status status = no_memory_;
    try {
      status = Write(regions);
    } catch (const std::bad_alloc&) {
      // Other threads wait for regions among these: report the error to them too.
    }
    lock.lock();
    writing_ = false;
    if (!status.ok() && failure_.ok()) failure_ = status;
    for (const uint64_t region : regions) {
      if (status.ok()) logged_[region].store(1, std::memory_order_release);
    }
    written_.notify_all();
  }
}

// Called by one thread at a time.
absl::Status RegionLog::Write(const std::vector<uint64_t>& regions) {
  std::vector<uint8_t> bytes(regions.size() * kRecordBytes);
  for (size_t i = 0; i < regions.size(); ++i) {
    StoreRecord(bytes.data() + i * kRecordBytes, seed_, records_ + i, regions[i] + 1);
  }
  uint64_t at = kHeaderBytes + records_ * kRecordBytes;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::pwrite(file_.number(), bytes.data() + done, bytes.size() - done,
                                     static_cast<off_t>(at + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FileError(shown_, written < 0 ? errno : EIO);
    done += static_cast<size_t>(written);
  }
  while (::fdatasync(file_.number()) != 0) {
    if (errno != EINTR) return FileError(shown_, errno);
  }
  if (absl::Status status = CheckName(); !status.ok()) return status;
  records_ += regions.size();
  return absl::OkStatus();
}

// No later process finds the records of a file that has lost its name.
absl::Status RegionLog::CheckName() const {
  const absl::StatusOr<bool> same = directory_.IsNamed(name_, file_.number());
  if (!same.ok()) return same.status();
  if (*same) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      shown_, ": was removed or replaced while in use; a checkpoint creates a new one"));
}

}  // namespace cbt
