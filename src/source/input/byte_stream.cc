#include "cbt/source/byte_stream.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/text.h"
#include "cbt/units.h"
#include "source/input/time_limit.h"

namespace cbt {
namespace {

class MemoryStream final : public ByteStream {
 public:
  MemoryStream(std::shared_ptr<const void> owner, std::span<const uint8_t> bytes,
               std::string_view label)
      : ByteStream(std::string(label)), owner_(std::move(owner)), bytes_(bytes) {}

 private:
  absl::StatusOr<size_t> DoRead(std::span<uint8_t> out) override {
    const size_t count = std::min(out.size(), bytes_.size());
    std::copy_n(bytes_.begin(), count, out.begin());
    bytes_ = bytes_.subspan(count);
    return count;
  }

  absl::StatusOr<uint64_t> DoSkip(uint64_t count) override {
    const auto there = static_cast<size_t>(std::min<uint64_t>(count, bytes_.size()));
    bytes_ = bytes_.subspan(there);
    return there;
  }

  const std::shared_ptr<const void> owner_;  // of the bytes; empty if the caller keeps them
  std::span<const uint8_t> bytes_;
};

class DescriptorStream final : public ByteStream {
 public:
  DescriptorStream(int descriptor, std::string_view label,
                   std::chrono::steady_clock::time_point deadline, std::stop_token stop)
      : ByteStream(std::string(label)),
        descriptor_(descriptor),
        deadline_(deadline),
        stop_(std::move(stop)) {
    const off_t begin = ::lseek(descriptor, 0, SEEK_CUR);
    struct stat stat;
    if (begin < 0 || ::fstat(descriptor, &stat) != 0) return;
    uint64_t size = 0;
    if (S_ISREG(stat.st_mode)) {
      size = static_cast<uint64_t>(stat.st_size);
    } else if (!S_ISBLK(stat.st_mode) || ::ioctl(descriptor, BLKGETSIZE64, &size) != 0) {
      return;
    }
    positioned_ = true;
    offset_ = static_cast<uint64_t>(begin);
    size_ = std::max(size, offset_);
  }

  ~DescriptorStream() override { ::close(descriptor_); }
  DescriptorStream(const DescriptorStream&) = delete;
  DescriptorStream& operator=(const DescriptorStream&) = delete;

 private:
  absl::StatusOr<size_t> DoRead(std::span<uint8_t> out) override {
    if (absl::Status status = Wait(); !status.ok()) return status;
    for (;;) {
      const ssize_t count = ::read(descriptor_, out.data(), out.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return FileError(label(), errno);
      offset_ += static_cast<uint64_t>(count);
      if (count == 0 && positioned_ && offset_ < size_) {
        return absl::AbortedError(absl::StrCat(label(), ": ends at byte ", offset_, ", it had ",
                                               size_, " when it was opened"));
      }
      return static_cast<size_t>(count);
    }
  }

  // Files don't wait for a writer.
  absl::Status Wait() const {
    const bool limited = deadline_ != std::chrono::steady_clock::time_point::max();
    if (!positioned_ && (limited || stop_.stop_possible())) {
      return WaitReadable(descriptor_, deadline_, stop_, label());
    }
    if (stop_.stop_requested()) return Stopped(label());
    if (limited && std::chrono::steady_clock::now() >= deadline_) return TookTooLong(label());
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoSkip(uint64_t count) override {
    if (!positioned_ || offset_ >= size_) return ByteStream::DoSkip(count);
    // Seeking past the end succeeds, but nothing is there.
    const uint64_t there = std::min(count, size_ - offset_);
    if (::lseek(descriptor_, static_cast<off_t>(offset_ + there), SEEK_SET) < 0) {
      return FileError(label(), errno);
    }
    offset_ += there;
    return there;
  }

  const int descriptor_;
  const std::chrono::steady_clock::time_point deadline_;
  const std::stop_token stop_;
  bool positioned_ = false;  // a file or a device
  uint64_t offset_ = 0;      // in it
  uint64_t size_ = 0;        // when it was opened
};

}  // namespace

absl::StatusOr<uint64_t> ByteStream::DoSkip(uint64_t count) {
  std::array<uint8_t, 32 * kKiB> scratch;
  const auto wanted = static_cast<size_t>(std::min<uint64_t>(count, scratch.size()));
  const absl::StatusOr<size_t> got = DoRead(std::span(scratch).first(wanted));
  if (!got.ok()) return got.status();
  return *got;
}

absl::Status ByteStream::EndsEarly(uint64_t missing) const {
  return absl::DataLossError(
      absl::StrCat(label_, ": ends at byte ", position_, ", ", missing, " bytes early"));
}

absl::StatusOr<size_t> ByteStream::Read(std::span<uint8_t> out) {
  const size_t waiting = peeked_.size() - peeked_used_;
  if (waiting > 0) {
    const size_t count = std::min(waiting, out.size());
    std::memcpy(out.data(), peeked_.data() + peeked_used_, count);
    peeked_used_ += count;
    position_ += count;
    return count;
  }
  absl::StatusOr<size_t> count = DoRead(out);
  if (count.ok()) position_ += *count;
  return count;
}

absl::Status ByteStream::ReadAll(std::span<uint8_t> out) {
  while (!out.empty()) {
    const absl::StatusOr<size_t> count = Read(out);
    if (!count.ok()) return count.status();
    if (*count == 0) return EndsEarly(out.size());
    out = out.subspan(*count);
  }
  return absl::OkStatus();
}

absl::Status ByteStream::Skip(uint64_t count) {
  const auto waiting =
      static_cast<size_t>(std::min<uint64_t>(count, peeked_.size() - peeked_used_));
  peeked_used_ += waiting;
  position_ += waiting;
  count -= waiting;
  while (count > 0) {
    const absl::StatusOr<uint64_t> skipped = DoSkip(count);
    if (!skipped.ok()) return skipped.status();
    if (*skipped == 0) return EndsEarly(count);
    position_ += *skipped;
    count -= *skipped;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> ByteStream::Peek(std::span<uint8_t> out) {
  peeked_.erase(0, peeked_used_);
  peeked_used_ = 0;
  const size_t wanted = std::min(out.size(), kMaxPeek);
  while (peeked_.size() < wanted) {
    const size_t there = peeked_.size();
    peeked_.resize(wanted);
    const absl::StatusOr<size_t> count =
        DoRead({reinterpret_cast<uint8_t*>(peeked_.data()) + there, wanted - there});
    peeked_.resize(there + (count.ok() ? *count : 0));
    if (!count.ok()) return count.status();
    if (*count == 0) break;
  }
  const size_t count = std::min(wanted, peeked_.size());
  std::memcpy(out.data(), peeked_.data(), count);
  return count;
}

absl::StatusOr<std::unique_ptr<ByteStream>> OpenByteStream(const std::string& path,
                                                           std::string_view label) {
  if (label.empty()) label = path == "-" ? std::string_view("standard input") : path;
  int descriptor = -1;
  if (path == "-") {
    descriptor = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  } else {
    descriptor = OpenFile(path, O_RDONLY | O_CLOEXEC);
  }
  if (descriptor < 0) return FileError(label, errno);
  struct stat stat;
  if (::fstat(descriptor, &stat) == 0 && S_ISDIR(stat.st_mode)) {
    ::close(descriptor);
    return absl::InvalidArgumentError(absl::StrCat(AbslView(label), ": is a directory"));
  }
  return MakeDescriptorStream(descriptor, label);
}

std::unique_ptr<ByteStream> MakeDescriptorStream(int descriptor, std::string_view label,
                                                 std::chrono::steady_clock::time_point deadline,
                                                 std::stop_token stop) {
  OwnedDescriptor owner(descriptor);
  auto stream = std::make_unique<DescriptorStream>(descriptor, label, deadline, std::move(stop));
  static_cast<void>(owner.Release());  // owned by the stream now
  return stream;
}

std::unique_ptr<ByteStream> MakeMemoryStream(SharedBytes bytes, std::string_view label) {
  return std::make_unique<MemoryStream>(bytes.owner(), bytes.bytes(), label);
}

std::unique_ptr<ByteStream> MakeBorrowedMemoryStream(std::span<const uint8_t> bytes,
                                                     std::string_view label) {
  return std::make_unique<MemoryStream>(nullptr, bytes, label);
}

}  // namespace cbt
