// Images and files as the ends of a copy.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "cbt/source/copy_ranges.h"

namespace cbt {
namespace {

class ImageInput final : public CopyInput {
 public:
  explicit ImageInput(std::shared_ptr<const Image> image) : image_(std::move(image)) {}

  uint64_t size() const override { return image_->size(); }
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const override {
    return image_->Read(offset, out.size(), out.data());
  }
  absl::StatusOr<Extent> FindData(uint64_t offset) const override {
    const absl::StatusOr<Image::Range> found = image_->FindData(offset);
    if (!found.ok()) return found.status();
    return Extent{found->begin, found->end - found->begin};
  }
  int descriptor() const override { return image_->descriptor(); }

 private:
  const std::shared_ptr<const Image> image_;
};

class FileOutput final : public CopyOutput {
 public:
  FileOutput(int descriptor, std::string_view label) : descriptor_(descriptor), label_(label) {}

  absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = Retry([&] {
        return ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      });
      if (written < 0) return Error(errno);
      // Nothing written and no error: a device at its end.
      if (written == 0) return Error(ENOSPC);
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += static_cast<uint64_t>(written);
    }
    return absl::OkStatus();
  }

  absl::Status WriteZeros(Extent extent) override {
    if (extent.length == 0) return absl::OkStatus();
    if (punches_holes_.load(std::memory_order_relaxed)) {
      const int punched = Retry([&] {
        return ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(extent.offset), static_cast<off_t>(extent.length));
      });
      if (punched == 0) return ReachEnd(extent);
      if (!IsUnsupported(errno)) return Error(errno);
      punches_holes_.store(false, std::memory_order_relaxed);
    }
    constexpr size_t kZeroBytes = 256 * kKiB;
    const std::vector<uint8_t> zeros(
        static_cast<size_t>(std::min<uint64_t>(extent.length, kZeroBytes)));
    uint64_t offset = extent.offset;
    while (offset < extent.end()) {
      const auto size =
          static_cast<size_t>(std::min<uint64_t>(extent.end() - offset, zeros.size()));
      if (absl::Status written = Write(offset, {zeros.data(), size}); !written.ok()) {
        return written;
      }
      offset += size;
    }
    return absl::OkStatus();
  }

  absl::Status Read(uint64_t offset, std::span<uint8_t> out) override {
    while (!out.empty()) {
      const ssize_t read = Retry(
          [&] { return ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset)); });
      if (read < 0) return Error(errno);
      if (read == 0) {
        return absl::DataLossError(
            absl::StrCat(AbslView(label_), ": ends at ", offset, " bytes, after a write past it"));
      }
      out = out.subspan(static_cast<size_t>(read));
      offset += static_cast<uint64_t>(read);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (Retry([&] { return ::fdatasync(descriptor_); }) == 0) return absl::OkStatus();
    return Error(errno);
  }

  int descriptor() const override { return descriptor_; }

 private:
  static bool IsUnsupported(int error) {
    return error == EINVAL || error == EOPNOTSUPP || error == ENOSYS || error == EPERM ||
           error == ENODEV || error == ESPIPE;
  }
  // The kernel punches only what is there, and reports no error for a hole past the end. So a file
  // gets as long as data would make it, and a device that is too small is an error.
  absl::Status ReachEnd(Extent extent) {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) return Error(errno);
    uint64_t size = static_cast<uint64_t>(info.st_size);
    if (S_ISBLK(info.st_mode) && ::ioctl(descriptor_, BLKGETSIZE64, &size) != 0) {
      return Error(errno);
    }
    if (extent.end() <= size) return absl::OkStatus();
    constexpr uint8_t kZero = 0;
    return Write(extent.end() - 1, {&kZero, 1});
  }
  // The descriptor is open, so what FileError() takes for a wrong path is a fault of the device.
  absl::Status Error(int error) const {
    absl::Status status = FileError(label_, error);
    if (absl::IsResourceExhausted(status)) return status;
    return absl::UnavailableError(status.message());
  }

  const int descriptor_;
  const std::string label_;
  std::atomic<bool> punches_holes_{true};
};

}  // namespace

std::unique_ptr<CopyInput> MakeCopyInput(std::shared_ptr<const Image> image) {
  return std::make_unique<ImageInput>(std::move(image));
}

std::unique_ptr<CopyOutput> MakeCopyOutput(int descriptor, std::string_view label) {
  return std::make_unique<FileOutput>(descriptor, label);
}

}  // namespace cbt
