#include "programs/volume/data_stamp.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "programs/volume/volume_directory.h"

namespace cbt::volume {
namespace {

constexpr ManifestKind kStampKind = {.magic = {0x89, 'C', 'B', 'D', '\r', '\n', 0x1a, '\n'},
                                     .major = 1,
                                     .minor = 0,
                                     .owner = "closed volume"};
constexpr uint64_t kMaxStampBytes = 4096;

// Waits until a change of the file would get another time than `changed_ns`.
void WaitForTick(int64_t changed_ns) {
  constexpr int64_t kWholeSecond = 1'000'000'000;
  // File systems that store whole seconds.
  const int64_t until = changed_ns % kWholeSecond == 0 ? changed_ns + kWholeSecond : changed_ns;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::milliseconds(1100);
  while (std::chrono::steady_clock::now() < give_up) {
    timespec now = {};
    // The clock from which the kernel takes the times of files.
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (ToNanoseconds(now) > until) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

absl::StatusOr<DataStamp> ReadStamp(const Directory& directory, int data) {
  struct stat stat;
  if (::fstat(data, &stat) != 0) return FileError(directory.Shown(kDataName), errno);
  return DataStamp{.inode = stat.st_ino,
                   .size = static_cast<uint64_t>(stat.st_size),
                   .modified_ns = ToNanoseconds(stat.st_mtim),
                   .changed_ns = ToNanoseconds(stat.st_ctim)};
}

absl::StatusOr<DataStamp> SettleStamp(const Directory& directory, int data) {
  // Not fdatasync(): the times have to be on disk too.
  if (Retry([&] { return ::fsync(data); }) != 0)
    return FileError(directory.Shown(kDataName), errno);
  const absl::StatusOr<DataStamp> stamp = ReadStamp(directory, data);
  if (!stamp.ok()) return stamp.status();
  WaitForTick(stamp->changed_ns);
  return stamp;
}

void EncodeStamp(ManifestWriter& writer, const DataStamp& stamp) {
  writer.Number(stamp.inode);
  writer.Number(stamp.size);
  writer.Number(stamp.modified_ns);
  writer.Number(stamp.changed_ns);
}

DataStamp DecodeStamp(ManifestReader& reader) {
  DataStamp stamp;
  stamp.inode = reader.Number<uint64_t>();
  stamp.size = reader.Number<uint64_t>();
  stamp.modified_ns = reader.Number<int64_t>();
  stamp.changed_ns = reader.Number<int64_t>();
  return stamp;
}

absl::Status WriteClosed(const Directory& directory, int data) {
  const absl::StatusOr<DataStamp> stamp = SettleStamp(directory, data);
  if (!stamp.ok()) return stamp.status();
  ManifestWriter writer(kStampKind);
  EncodeStamp(writer, *stamp);
  const std::vector<uint8_t> bytes = std::move(writer).Finish();
  const std::array<std::span<const uint8_t>, 1> parts = {bytes};
  return directory.Write(kClosedName, parts, /*sync=*/true);
}

absl::StatusOr<DataStamp> ReadClosed(const Directory& directory) {
  absl::StatusOr<std::vector<uint8_t>> bytes = directory.Read(kClosedName, kMaxStampBytes);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<ManifestReader> reader =
      ManifestReader::Open(*bytes, kStampKind, directory.Shown(kClosedName));
  if (absl::IsInvalidArgument(reader.status())) {
    return absl::DataLossError(reader.status().message());
  }
  if (!reader.ok()) return reader.status();
  const size_t begin = reader->at();
  const DataStamp stamp = DecodeStamp(*reader);
  if (!reader->ended()) return reader->Damaged(begin, "not the stamp of a closed volume");
  return stamp;
}

}  // namespace cbt::volume
