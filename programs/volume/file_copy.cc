#include "programs/volume/file_copy.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>

#include "base/file_io.h"
#include "cbt/units.h"

namespace cbt::volume {
namespace {

// By reading and writing, for pairs of files that the kernel does not copy: a block device, or
// two file systems.
int CopyThroughMemory(int from, int to, Extent range) noexcept {
  constexpr size_t kBuffer = 256 * kKiB;
  const std::unique_ptr<uint8_t[]> buffer(new (std::nothrow) uint8_t[kBuffer]);
  if (buffer == nullptr) return ENOMEM;
  while (range.length > 0) {
    const ssize_t got = Retry([&] {
      return ::pread(from, buffer.get(), std::min<uint64_t>(kBuffer, range.length),
                     static_cast<off_t>(range.offset));
    });
    if (got < 0) return errno;
    if (got == 0) return EIO;
    const int error = WriteAt(to, {buffer.get(), static_cast<size_t>(got)}, range.offset);
    if (error != 0) return error;
    range.offset += static_cast<uint64_t>(got);
    range.length -= static_cast<uint64_t>(got);
  }
  return 0;
}

int CopyData(int from, int to, Extent range) noexcept {
  while (range.length > 0) {
    off_t in = static_cast<off_t>(range.offset);
    off_t out = in;
    const ssize_t copied = Retry([&] {
      return ::copy_file_range(from, &in, to, &out, std::min<uint64_t>(range.length, kGiB), 0);
    });
    // Some file systems copy nothing and report no error.
    if (copied <= 0) {
      if (copied == 0 || errno == EXDEV || errno == EINVAL || errno == ENOSYS ||
          errno == EOPNOTSUPP || errno == EPERM) {
        return CopyThroughMemory(from, to, range);
      }
      return errno;
    }
    range.offset += static_cast<uint64_t>(copied);
    range.length -= static_cast<uint64_t>(copied);
  }
  return 0;
}

}  // namespace

int WriteAt(int file, std::span<const uint8_t> bytes, uint64_t offset) noexcept {
  while (!bytes.empty()) {
    const ssize_t put = Retry([&] {
      return ::pwrite(file, bytes.data(), std::min<size_t>(bytes.size(), kGiB),
                      static_cast<off_t>(offset));
    });
    if (put < 0) return errno;
    if (put == 0) return EIO;
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return 0;
}

int CloneFile(int from, int to) noexcept {
  return Retry([&] { return ::ioctl(to, FICLONE, from); }) == 0 ? 0 : errno;
}

bool CannotClone(int error) noexcept {
  return error == EOPNOTSUPP || error == ENOTTY || error == EXDEV || error == EINVAL ||
         error == ENOSYS || error == EISDIR || error == EPERM || error == ETXTBSY;
}

int FindRun(int file, Extent range, DataRun& run) noexcept {
  const auto at = static_cast<off_t>(range.offset);
  const off_t data = ::lseek(file, at, SEEK_DATA);
  if (data < 0) {
    // ENXIO: no data up to the end of the file. EINVAL: this can't be asked here.
    if (errno == ENXIO) {
      run = {range.end(), true};
      return 0;
    }
    if (errno != EINVAL) return errno;
    run = {range.end(), false};
    return 0;
  }
  if (data > at) {
    run = {std::min(range.end(), static_cast<uint64_t>(data)), true};
    return 0;
  }
  const off_t hole = ::lseek(file, at, SEEK_HOLE);
  // A file that has become shorter: what follows is for reads to report.
  if (hole < 0) return errno == ENXIO ? EIO : errno;
  // Data that another thread has just released.
  if (hole <= at) {
    run = {std::min(range.end(), range.offset + 1), false};
    return 0;
  }
  run = {std::min(range.end(), static_cast<uint64_t>(hole)), false};
  return 0;
}

int CopyRange(int from, int to, Extent range, CopyTarget target) noexcept {
  if (target == CopyTarget::kAnything) return CopyData(from, to, range);
  while (range.length > 0) {
    DataRun run;
    if (const int error = FindRun(from, range, run); error != 0) return error;
    const Extent part{range.offset, run.end - range.offset};
    if (!run.hole) {
      if (const int error = CopyData(from, to, part); error != 0) return error;
    }
    range = {run.end, range.end() - run.end};
  }
  return 0;
}

int PunchHole(int file, Extent range) noexcept {
  return Retry([&] {
           return ::fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
                              static_cast<off_t>(range.offset), static_cast<off_t>(range.length));
         }) == 0
             ? 0
             : errno;
}

int WriteZeros(int file, Extent range) noexcept {
  static constexpr std::array<uint8_t, 64 * kKiB> kZeros = {};
  while (range.length > 0) {
    const size_t part = std::min<uint64_t>(range.length, kZeros.size());
    if (const int error = WriteAt(file, {kZeros.data(), part}, range.offset); error != 0) {
      return error;
    }
    range = {range.offset + part, range.length - part};
  }
  return 0;
}

int RestoreRange(int from, uint64_t size, int to, Extent range) noexcept {
  while (range.length > 0) {
    DataRun run = {range.end(), true};
    int error = 0;
    if (range.offset < size) {
      error = FindRun(from, {range.offset, std::min(range.length, size - range.offset)}, run);
      if (error != 0) return error;
    }
    const Extent part{range.offset, run.end - range.offset};
    if (run.hole) {
      error = PunchHole(to, part);
      if (CannotAllocate(error)) error = WriteZeros(to, part);
    } else {
      error = CopyRange(from, to, part, CopyTarget::kAnything);
    }
    if (error != 0) return error;
    range = {run.end, range.end() - run.end};
  }
  return 0;
}

bool CannotAllocate(int error) noexcept {
  return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

}  // namespace cbt::volume
