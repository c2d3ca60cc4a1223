// Files and pipes that an overlay is written to.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/text.h"
#include "source/overlay/overlay_writer.h"

namespace cbt {
namespace {

// What users may give a pipe by default.
constexpr int kPipeBytes = 1 << 20;

class DescriptorOutput final : public OverlayOutput {
 public:
  DescriptorOutput(int descriptor, std::string_view label)
      : descriptor_(descriptor), label_(label) {
    struct stat info {};
    const int flags = ::fcntl(descriptor, F_GETFL);
    // What is opened to append (>>) can't be written at its beginning again.
    is_file_ = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0 &&
               flags >= 0 && (flags & O_APPEND) == 0 && ::lseek(descriptor, 0, SEEK_CUR) == 0;
    // Its usual 64 KiB wake the reader sixteen times a MiB. Where users may not have so much in
    // pipes, it stays as it is.
    if (S_ISFIFO(info.st_mode)) ::fcntl(descriptor, F_SETPIPE_SZ, kPipeBytes);
  }

  bool seekable() const override { return is_file_; }

  absl::Status Append(std::span<const uint8_t> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written =
          Retry([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
      if (written < 0) return Failed(errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
      size_ += static_cast<uint64_t>(written);
    }
    return absl::OkStatus();
  }

  absl::Status AppendZeros(uint64_t size) override {
    if (is_file_) {
      size_ += size;
      const auto end = static_cast<off_t>(size_);
      if (Retry([&] { return ::ftruncate(descriptor_, end); }) != 0) return Failed(errno);
      if (::lseek(descriptor_, end, SEEK_SET) != end) return Failed(errno);
      return absl::OkStatus();
    }
    const std::vector<uint8_t> zeros(static_cast<size_t>(std::min<uint64_t>(size, 64 * kKiB)));
    while (size > 0) {
      const uint64_t part = std::min<uint64_t>(size, zeros.size());
      absl::Status status = Append({zeros.data(), static_cast<size_t>(part)});
      if (!status.ok()) return status;
      size -= part;
    }
    return absl::OkStatus();
  }

  absl::Status WriteHeader(std::span<const uint8_t> bytes) override {
    if (Retry([&] { return ::fdatasync(descriptor_); }) != 0) return Failed(errno);
    off_t offset = 0;
    while (!bytes.empty()) {
      const ssize_t written =
          Retry([&] { return ::pwrite(descriptor_, bytes.data(), bytes.size(), offset); });
      if (written < 0) return Failed(errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += written;
    }
    return absl::OkStatus();
  }

 private:
  // The descriptor is open, so what FileError() takes for a wrong path is a fault of the device.
  absl::Status Failed(int error) const {
    absl::Status status = FileError(label_, error);
    if (absl::IsResourceExhausted(status)) return status;
    return absl::UnavailableError(status.message());
  }

  const int descriptor_;
  const std::string label_;
  bool is_file_ = false;
  uint64_t size_ = 0;
};

}  // namespace

std::unique_ptr<OverlayOutput> MakeOverlayOutput(int descriptor, std::string_view label) {
  return std::make_unique<DescriptorOutput>(descriptor, label);
}

}  // namespace cbt
