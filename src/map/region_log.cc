#include "map/region_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/utf8.h"
#include "map/checksum.h"
#include "map/container.h"
#include "map/descriptor.h"
#include "map/file_io.h"

namespace cbt {
namespace {

// docs/format.md has the bytes.
constexpr std::array<uint8_t, 8> kMagic = {0x89, 'C', 'B', 'L', '\r', '\n', 0x1a, '\n'};
constexpr uint16_t kMajor = 1;
constexpr size_t kHeaderBytes = 12288;
constexpr size_t kChecksumAt = kHeaderBytes - 8;
constexpr size_t kFieldsAt = 16;
constexpr size_t kNamesAt = 64;
constexpr size_t kRecordBytes = 16;

static_assert(kNamesAt + 2 * (2 + kMaxMapNameBytes) <= kChecksumAt);

template <typename T>
void Store(uint8_t* at, T number) noexcept {
  std::memcpy(at, &number, sizeof(number));
}

// Ties a record to its log, its place and its region. Never 0, which is an empty place.
uint64_t CheckValue(uint64_t seed, uint64_t place, uint64_t region) noexcept {
  std::array<uint8_t, 24> bytes;
  Store(bytes.data(), seed);
  Store(bytes.data() + 8, place);
  Store(bytes.data() + 16, region);
  return Checksum(bytes) | 1;
}

std::vector<uint8_t> EncodeHeader(const RegionLogHeader& header) {
  std::vector<uint8_t> bytes(kHeaderBytes);
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  Store(bytes.data() + 8, kMajor);
  uint8_t* at = bytes.data() + kFieldsAt;
  for (const uint64_t field : {header.geometry.capacity, header.geometry.granularity,
                               header.region_bytes, header.epoch, header.generation}) {
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

RegionLog::RegionLog(OwnedDescriptor file, std::string path, uint64_t seed, uint64_t regions)
    : file_(std::move(file)),
      path_(std::move(path)),
      seed_(seed),
      no_memory_(absl::ResourceExhaustedError(absl::StrCat(path_, ": no memory to write to it"))),
      logged_(regions) {}

absl::StatusOr<std::shared_ptr<RegionLog>> RegionLog::Create(const std::string& path,
                                                             const RegionLogHeader& header) {
  const std::vector<uint8_t> front = EncodeHeader(header);
  // A place for every region, written and not only reserved: the log must not fail for want of
  // space when a write waits for it.
  const std::vector<uint8_t> places(header.regions() * kRecordBytes);
  const std::span<const uint8_t> parts[] = {front, places};
  if (absl::Status status = WriteFileAtomically(path, parts, true); !status.ok()) return status;
  OwnedDescriptor file(OpenFile(path, O_WRONLY | O_CLOEXEC));
  if (!file.has_value()) return FileError(path, errno);
  return std::shared_ptr<RegionLog>(
      new RegionLog(std::move(file), path, LoadU64(front.data() + kChecksumAt), header.regions()));
}

absl::StatusOr<RegionLog::Contents> RegionLog::Read(const std::string& path) {
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const std::span<const uint8_t> bytes = (*file)->bytes();
  const auto damaged = [&path](size_t at, const char* why) {
    return absl::DataLossError(absl::StrCat(path, ": offset ", at, ": ", why));
  };
  if (bytes.size() < kHeaderBytes) return damaged(bytes.size(), "ends in its header");
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) {
    return damaged(0, "does not begin like a log of regions");
  }
  if (const uint16_t major = LoadU16(bytes.data() + 8); major != kMajor) {
    return absl::UnimplementedError(absl::StrCat(path, ": is of version ", major,
                                                 " of the log format, this program reads version ",
                                                 kMajor));
  }
  const uint64_t seed = LoadU64(bytes.data() + kChecksumAt);
  if (seed != Checksum(bytes.first(kChecksumAt))) {
    return damaged(kChecksumAt, "the checksum of the header is wrong");
  }
  Contents contents;
  RegionLogHeader& header = contents.header;
  const uint8_t* const fields = bytes.data() + kFieldsAt;
  header.geometry = {LoadU64(fields), LoadU64(fields + 8)};
  header.region_bytes = LoadU64(fields + 16);
  header.epoch = LoadU64(fields + 24);
  header.generation = LoadU64(fields + 32);
  const uint8_t* at = bytes.data() + kNamesAt;
  for (std::string* name : {&header.volume, &header.base}) {
    const size_t size = LoadU16(at);
    if (size > kMaxMapNameBytes) return damaged(kNamesAt, "a name that is too long");
    name->assign(reinterpret_cast<const char*>(at) + 2, size);
    if (!IsUtf8(*name)) return damaged(kNamesAt, "a name that is not UTF-8");
    at += 2 + size;
  }
  absl::Status geometry = CheckGeometry(header.geometry.capacity, header.geometry.granularity);
  if (!geometry.ok() || header.region_bytes == 0) return damaged(kFieldsAt, "no possible geometry");

  // Records up to the first empty place, and nothing behind it.
  if (bytes.size() - kHeaderBytes != header.regions() * kRecordBytes) contents.sound = false;
  const uint64_t places = (bytes.size() - kHeaderBytes) / kRecordBytes;
  bool ended = false;
  for (uint64_t place = 0; place < places && contents.sound; ++place) {
    const uint8_t* const record = bytes.data() + kHeaderBytes + place * kRecordBytes;
    const uint64_t region = LoadU64(record);
    const uint64_t check = LoadU64(record + 8);
    if (region == 0 && check == 0) {
      ended = true;
    } else if (ended || region > header.regions() || region == 0 ||
               check != CheckValue(seed, place, region - 1)) {
      contents.sound = false;
    } else {
      contents.regions.push_back(region - 1);
    }
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
  // Nobody takes out what a broken log is given.
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
    // This thread writes what has come together so far, its own regions among them.
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
      // Others wait for their regions, which are among these: they must hear of it.
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
    Store(bytes.data() + i * kRecordBytes, regions[i] + 1);
    Store(bytes.data() + i * kRecordBytes + 8, CheckValue(seed_, records_ + i, regions[i]));
  }
  uint64_t at = kHeaderBytes + records_ * kRecordBytes;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::pwrite(file_.number(), bytes.data() + done, bytes.size() - done,
                                     static_cast<off_t>(at + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FileError(path_, written < 0 ? errno : EIO);
    done += static_cast<size_t>(written);
  }
  while (::fdatasync(file_.number()) != 0) {
    if (errno != EINTR) return FileError(path_, errno);
  }
  records_ += regions.size();
  return absl::OkStatus();
}

}  // namespace cbt
