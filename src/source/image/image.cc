#include "cbt/source/image.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/holes.h"
#include "base/text.h"

namespace cbt {
namespace {

// What counts as data if its end can no longer be determined: one page.
constexpr uint64_t kVanishedBytes = 4096;

// ENXIO and EINVAL are a pipe or a socket here.
absl::Status OpenError(std::string_view label, int error) {
  const std::string what = absl::StrCat("open: ", AbslView(label));
  if (error == ENXIO || error == EINVAL) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", ErrnoText(error)));
  }
  return FileError(what, error);
}

using PathBuffer = std::array<char, PATH_MAX>;

// The kernel's path of an open file, in `buffer`. Empty if unknown; also for deleted files, whose
// name may look like another file's.
std::string_view PathOf(int descriptor, PathBuffer& buffer) noexcept {
  std::array<char, 32> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const ssize_t length = ::readlink(link.data(), buffer.data(), buffer.size());
  if (length <= 0 || static_cast<size_t>(length) >= buffer.size()) return {};
  const std::string_view path(buffer.data(), static_cast<size_t>(length));
  return path.front() == '/' && !path.ends_with(" (deleted)") ? path : std::string_view();
}

bool SameTime(const timespec& a, const timespec& b) noexcept {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

struct Image::Identity {
  struct stat stat;
  // Of a file whose data is found only once it is on the disk: whether it has been written there.
  mutable std::once_flag written;
  mutable int write_error = 0;
  // The data that was found last. Threads that read neighbouring parts ask within it again, and a
  // file system may look at every page up to the hole (tmpfs), or at every extent.
  mutable std::mutex found_mutex;
  mutable Range found;
};

Image::Image(int descriptor, std::string label, uint64_t size, std::unique_ptr<Identity> identity)
    : descriptor_(descriptor),
      label_(std::move(label)),
      size_(size),
      identity_(std::move(identity)) {}

Image::~Image() { ::close(descriptor_); }

absl::StatusOr<std::shared_ptr<const Image>> Image::Open(const std::string& path,
                                                         std::string_view label) {
  if (label.empty()) label = path;
  if (path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("open: ", path.c_str(), "...: the path holds a NUL byte"));
  }
  // Without O_NONBLOCK, opening a pipe without a writer would hang here before it could be refused.
  const int descriptor = OpenFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return OpenError(label, errno);
  return FromDescriptor(descriptor, label);
}

absl::StatusOr<std::shared_ptr<const Image>> Image::FromDescriptor(int descriptor,
                                                                   std::string_view label) {
  OwnedDescriptor owner(descriptor);
  auto identity = std::make_unique<Identity>();
  if (::fstat(descriptor, &identity->stat) != 0) return OpenError(label, errno);
  const mode_t mode = identity->stat.st_mode;
  uint64_t size = 0;
  const char* wrong = nullptr;
  if (S_ISREG(mode)) {
    size = static_cast<uint64_t>(identity->stat.st_size);
  } else if (S_ISBLK(mode)) {
    if (::ioctl(descriptor, BLKGETSIZE64, &size) != 0) wrong = "can't determine the device's size";
  } else if (S_ISDIR(mode)) {
    wrong = "is a directory, not an image";
  } else {
    wrong = "is neither a regular file nor a block device";
  }
  if (wrong == nullptr && size > kMaxCapacity) wrong = "is too large";
  if (wrong != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("open: ", AbslView(label), ": ", wrong));
  }
  std::string own_label(label);
  std::unique_ptr<const Image> image(
      new Image(descriptor, std::move(own_label), size, std::move(identity)));
  static_cast<void>(owner.Release());  // owned by the image now
  return std::shared_ptr<const Image>(std::move(image));
}

bool Image::SameFileAs(const Image& other) const noexcept {
  if (this == &other) return true;
  const struct stat& a = identity_->stat;
  const struct stat& b = other.identity_->stat;
  if (!MayBeSameFileAs(other)) return false;
  if (S_ISBLK(a.st_mode)) return true;
  // If a server rotates its snapshots, an open file may keep a path that is another file's by now.
  if (a.st_size != b.st_size || !SameTime(a.st_ctim, b.st_ctim)) return false;
  // Queried now and not when the files were opened: a snapshot may have been renamed to another's
  // name since, and the kernel knows the open one by its new name.
  PathBuffer here;
  PathBuffer there;
  const std::string_view path = PathOf(descriptor_, here);
  return !path.empty() && path == PathOf(other.descriptor_, there);
}

bool Image::MayBeSameFileAs(const Image& other) const noexcept {
  const struct stat& a = identity_->stat;
  const struct stat& b = other.identity_->stat;
  if ((a.st_mode & S_IFMT) != (b.st_mode & S_IFMT)) return false;
  if (S_ISBLK(a.st_mode)) return a.st_rdev == b.st_rdev;
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

absl::Status Image::Read(uint64_t offset, size_t length, uint8_t* out) const {
  const uint64_t there = offset < size_ ? std::min<uint64_t>(length, size_ - offset) : 0;
  size_t done = 0;
  while (done < there) {
    const ssize_t count = ::pread(descriptor_, out + done, static_cast<size_t>(there) - done,
                                  static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      return absl::UnavailableError(absl::StrCat("read: ", label_, ": ", length,
                                                 " bytes at offset ", offset + done, ": ",
                                                 ErrnoText(error)));
    }
    if (count == 0) {
      return absl::AbortedError(absl::StrCat("read: ", label_, ": the image ends at offset ",
                                             offset + done, ", it had ", size_,
                                             " bytes when it was opened"));
    }
    done += static_cast<size_t>(count);
  }
  // `out` may be null if length is 0, which memset() must not get.
  if (done < length) std::memset(out + done, 0, length - done);
  return absl::OkStatus();
}

absl::StatusOr<Image::Range> Image::FindData(uint64_t offset) const {
  if (offset >= size_) return Range{size_, size_};
  std::call_once(identity_->written, [this] {
    if (SkipsUnwrittenData(descriptor_) && ::fsync(descriptor_) != 0) {
      identity_->write_error = errno;
    }
  });
  if (identity_->write_error != 0) {
    return absl::UnavailableError(
        absl::StrCat("sync: ", label_, ": ", ErrnoText(identity_->write_error)));
  }
  {
    const std::lock_guard<std::mutex> lock(identity_->found_mutex);
    const Range& found = identity_->found;
    if (found.begin <= offset && offset < found.end) return Range{offset, found.end};
  }
  const off_t begin = ::lseek(descriptor_, static_cast<off_t>(offset), SEEK_DATA);
  if (begin < 0) {
    switch (errno) {
      case ENXIO:  // no data from here to the end
        return Range{size_, size_};
      case EINVAL:  // a file system or device without holes
      case EOPNOTSUPP:
      case ENOSYS:
        return Range{offset, size_};
      default: {
        const int error = errno;
        return absl::UnavailableError(
            absl::StrCat("seek data: ", label_, ": at offset ", offset, ": ", ErrnoText(error)));
      }
    }
  }
  // A file that has grown may have data past the original size.
  if (static_cast<uint64_t>(begin) >= size_) return Range{size_, size_};
  const off_t end = ::lseek(descriptor_, begin, SEEK_HOLE);
  if (end < 0 && errno != ENXIO) {
    const int error = errno;
    return absl::UnavailableError(absl::StrCat("seek hole: ", label_, ": at offset ",
                                               static_cast<uint64_t>(begin), ": ",
                                               ErrnoText(error)));
  }
  // ENXIO: the file became shorter since the previous call. Reading it will show that.
  const uint64_t stop = end < 0 ? size_ : std::min(static_cast<uint64_t>(end), size_);
  // Data of the first call can be a hole for the second: a page of unwritten space counts as data
  // while it is cached. What follows is unknown, and an empty range would look like the end.
  const uint64_t least = std::min(static_cast<uint64_t>(begin) + kVanishedBytes, size_);
  const Range range{static_cast<uint64_t>(begin),
                    stop > static_cast<uint64_t>(begin) ? stop : least};
  const std::lock_guard<std::mutex> lock(identity_->found_mutex);
  identity_->found = range;
  return range;
}

absl::Status Image::CheckUnchanged() const {
  struct stat now;
  if (::fstat(descriptor_, &now) != 0) {
    const int error = errno;
    return absl::UnavailableError(absl::StrCat("stat: ", label_, ": ", ErrnoText(error)));
  }
  if (S_ISBLK(now.st_mode)) return absl::OkStatus();
  if (static_cast<uint64_t>(now.st_size) != size_) {
    return absl::AbortedError(absl::StrCat("read: ", label_, ": the image has ", now.st_size,
                                           " bytes now, it had ", size_, " when it was opened"));
  }
  if (!SameTime(now.st_mtim, identity_->stat.st_mtim)) {
    return absl::AbortedError(
        absl::StrCat("read: ", label_, ": the image was written to since it was opened"));
  }
  if (WasWritten(identity_->stat, now)) {
    return absl::AbortedError(absl::StrCat(
        "read: ", label_,
        ": since the image was opened, it was written to and its modification time put "
        "back, or its name, links or attributes have changed"));
  }
  return absl::OkStatus();
}

}  // namespace cbt
