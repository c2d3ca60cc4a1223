#include "programs/cbt/output/range_copier.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/units.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

constexpr size_t kBufferBytes = kMiB;
// One call of copy_file_range: long enough to be cheap, short enough for a progress bar.
constexpr uint64_t kPieceBytes = 16 * kMiB;

// True for errors of copy_file_range and fallocate that mean that the file systems don't support
// them.
bool IsUnsupported(int error) {
  return error == EXDEV || error == EINVAL || error == EOPNOTSUPP || error == ENOSYS ||
         error == EPERM || error == EBADF || error == ETXTBSY;
}

}  // namespace

RangeCopier::RangeCopier(int descriptor, std::string name)
    : descriptor_(descriptor), name_(std::move(name)) {}

absl::Status RangeCopier::CopyData(const Image& image, uint64_t begin, uint64_t end) {
  while (begin < end) {
    const absl::StatusOr<Image::Range> data = NextData(image, begin, end);
    if (!data.ok()) return data.status();
    if (absl::Status copied = CopyBytes(image, data->begin, data->end); !copied.ok()) return copied;
    begin = data->end;
  }
  return absl::OkStatus();
}

absl::Status RangeCopier::CopyExactly(const Image& image, uint64_t begin, uint64_t end) {
  while (begin < end) {
    const absl::StatusOr<Image::Range> data = NextData(image, begin, end);
    if (!data.ok()) return data.status();
    if (absl::Status cleared = Clear(begin, data->begin); !cleared.ok()) return cleared;
    if (absl::Status copied = CopyBytes(image, data->begin, data->end); !copied.ok()) return copied;
    begin = data->end;
  }
  return absl::OkStatus();
}

absl::StatusOr<Image::Range> RangeCopier::NextData(const Image& image, uint64_t offset,
                                                   uint64_t end) {
  const bool known = found_in_ == &image && offset >= found_from_ && offset < found_.end;
  if (!known) {
    absl::StatusOr<Image::Range> found = image.FindData(offset);
    if (!found.ok()) return found.status();
    found_in_ = &image;
    found_from_ = offset;
    found_ = *found;
  }
  return Image::Range{.begin = std::clamp(found_.begin, offset, end),
                      .end = std::clamp(found_.end, offset, end)};
}

absl::Status RangeCopier::CopyBytes(const Image& image, uint64_t begin, uint64_t end) {
  while (begin < end && copies_in_kernel_) {
    if (absl::Status copied = CopyInKernel(image, begin, end); !copied.ok()) return copied;
  }
  if (begin < end && buffer_.empty()) buffer_.resize(kBufferBytes);
  while (begin < end) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(end - begin, kBufferBytes));
    if (absl::Status read = image.Read(begin, size, buffer_.data()); !read.ok()) return read;
    if (absl::Status written = Write(begin, buffer_.data(), size); !written.ok()) return written;
    begin += size;
    if (on_copied_) on_copied_(begin);
  }
  return absl::OkStatus();
}

absl::Status RangeCopier::CopyInKernel(const Image& image, uint64_t& begin, uint64_t end) {
  auto from = static_cast<off64_t>(begin);
  auto to = from;
  const auto size = static_cast<size_t>(std::min(end - begin, kPieceBytes));
  const ssize_t copied = copy_file_range(image.descriptor(), &from, descriptor_, &to, size, 0);
  if (copied > 0) {
    begin += static_cast<uint64_t>(copied);
    if (on_copied_) on_copied_(begin);
  } else if (copied == 0 || IsUnsupported(errno)) {
    // 0 bytes means the end of the file, or a file system that wrongly says so: reading shows
    // which, and fails if the image has become shorter.
    copies_in_kernel_ = false;
  } else if (errno != EINTR) {
    return IoError(image.label() + " to " + name_, errno);
  }
  return absl::OkStatus();
}

absl::Status RangeCopier::Clear(uint64_t begin, uint64_t end) {
  if (begin >= end) return absl::OkStatus();
  if (punches_holes_) {
    int punched = 0;
    do {
      punched = fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<off64_t>(begin), static_cast<off64_t>(end - begin));
    } while (punched != 0 && errno == EINTR);
    if (punched == 0) return absl::OkStatus();
    if (!IsUnsupported(errno)) return IoError(name_, errno);
    punches_holes_ = false;
  }
  const std::vector<uint8_t> zeros(
      static_cast<size_t>(std::min<uint64_t>(end - begin, kBufferBytes)));
  while (begin < end) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(end - begin, zeros.size()));
    if (absl::Status written = Write(begin, zeros.data(), size); !written.ok()) return written;
    begin += size;
  }
  return absl::OkStatus();
}

absl::Status RangeCopier::Write(uint64_t offset, const uint8_t* data, size_t size) {
  while (size > 0) {
    const ssize_t written = pwrite(descriptor_, data, size, static_cast<off64_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return IoError(name_, errno);
    }
    data += written;
    size -= static_cast<size_t>(written);
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace cbt::cli
