#include "source/open/source_request.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "source/input/derived_inputs.h"
#include "source/input/time_limit.h"
#include "source/open/list_look.h"

namespace cbt {
namespace {

// What has no blocks of its own is read in those of the default.
SourceOptions WithBlockSize(SourceOptions options) {
  if (options.block_size == 0) options.block_size = SourceOptions().block_size;
  return options;
}

}  // namespace

bool IsNbdAddress(std::string_view address) {
  for (const std::string_view scheme : {"nbd://", "nbds://", "nbd+unix://", "nbds+unix://"}) {
    if (address.starts_with(scheme)) return true;
  }
  return false;
}

SourceRequest::SourceRequest(std::string address, const SourceOptions& options)
    : address_(std::move(address)),
      options_(WithBlockSize(options)),
      own_block_size_(options.block_size == 0),
      label_(!options.label.empty() ? options.label
             : address_ == "-"      ? "standard input"
                                    : address_) {}

absl::Status SourceRequest::Prepare() {
  const auto cut = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  bool holds_nul = cut(address_);
  for (const auto& [key, value] : options_.spec.options) holds_nul = holds_nul || cut(value);
  if (holds_nul) {
    // Not the label, which may be the address.
    return absl::InvalidArgumentError(
        absl::StrCat(address_.c_str(), ": the address or an option holds a NUL byte"));
  }
  if (!IsPowerOfTwo(options_.block_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("block size ", options_.block_size, " is not a power of two"));
  }
  if (absl::Status status = FindFormat(); !status.ok()) return status;
  // A spec may not come from ParseSourceSpec(), and one without a format may not fit the detected
  // one.
  const absl::Status status = CheckSourceOptions(format_, options_.spec);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(label_, ": ", status.message()));
}

absl::Status SourceRequest::FindFormat() {
  if (IsNbdAddress(address_)) {
    format_ = SourceFormat::kNbd;
    if (options_.spec.format.value_or(format_) == format_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        label_, ": is the address of an NBD export, not of ", InfoOf(*options_.spec.format).what));
  }
  if (options_.spec.format.has_value()) {
    format_ = *options_.spec.format;
    if (format_ != SourceFormat::kNbd) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": is not the address of an NBD export, such as nbd://host/name"));
  }
  // Anything that can't be read as a stream, such as a device, is an image.
  if (absl::Status status = OpenStream(); !status.ok()) return status;
  std::vector<uint8_t> first(ByteStream::kMaxPeek);
  const absl::StatusOr<size_t> count = stream_->Peek(first);
  if (!count.ok()) return count.status();
  const absl::StatusOr<SourceFormat> format = DetectSourceFormat(std::span(first).first(*count));
  if (!format.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": ", format.status().message(), ": name the format (--from)"));
  }
  format_ = *format;
  if (absl::Status status = CheckName(); !status.ok()) return status;
  if (format_ != SourceFormat::kImage) return CheckIsNoVolume();
  if (!file_bytes_.has_value()) return absl::OkStatus();
  return CheckIsNoList(std::span(first).first(*count), *file_bytes_, *stream_);
}

// A file of a known format whose beginning is damaged would be a raw image by its content, and
// one that was copied over by a file of another format would be that.
absl::Status SourceRequest::CheckName() const {
  const std::string_view named = ContentByName(address_);
  if (named.empty() || HasNameOf(format_, address_)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(label_, ": is named like a file of the kind \"", AbslView(named),
                   "\", but its content is not, and may be damaged: name the format (--from ",
                   InfoOf(format_).name, " for what the content looks like",
                   format_ == SourceFormat::kImage ? ", the bytes of a volume)" : ")"));
}

// A guest controls the content of its volume, which may look like a list that reports nothing. It
// controls neither the size, which is whole sectors, nor the name.
absl::Status SourceRequest::CheckIsNoVolume() const {
  const bool whole_sectors = file_bytes_.has_value() && *file_bytes_ % kSectorBytes == 0;
  if (!is_device_ && (!whole_sectors || HasNameOf(format_, address_))) return absl::OkStatus();
  const SourceFormatInfo& info = InfoOf(format_);
  return absl::InvalidArgumentError(absl::StrCat(label_, ": looks like ", info.what,
                                                 ", but could be a raw volume with that "
                                                 "content: name the format (--from ",
                                                 info.name,
                                                 ", or --from image for the bytes of a volume)"));
}

std::optional<std::string> SourceRequest::Option(std::string_view key) const {
  for (const auto& [name, value] : options_.spec.options) {
    if (name == key) return value;
  }
  return std::nullopt;
}

absl::Status SourceRequest::Number(std::string_view key, uint64_t max, uint64_t& out) const {
  const std::optional<std::string> text = Option(key);
  if (!text.has_value()) return absl::OkStatus();
  const absl::StatusOr<uint64_t> number = ParseNumber(*text, max);
  if (!number.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(InfoOf(format_).name, ": ", AbslView(key), "=", number.status().message()));
  }
  out = *number;
  return absl::OkStatus();
}

absl::Status SourceRequest::Choice(std::string_view key, std::string_view no, std::string_view yes,
                                   bool& out) const {
  const std::optional<std::string> text = Option(key);
  if (!text.has_value()) return absl::OkStatus();
  if (*text != no && *text != yes) {
    return absl::InvalidArgumentError(absl::StrCat(InfoOf(format_).name, ": ", AbslView(key), ": '",
                                                   *text, "' is neither ", AbslView(no), " nor ",
                                                   AbslView(yes)));
  }
  out = *text == yes;
  return absl::OkStatus();
}

absl::StatusOr<int> SourceRequest::Open() const {
  if (options_.open) return options_.open(address_);
  // Without O_NONBLOCK, opening a pipe as an image would hang here before it could be refused.
  const int descriptor = OpenFile(address_, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return FileError(label_, errno);
  return descriptor;
}

std::chrono::steady_clock::time_point SourceRequest::Deadline() const {
  if (!options_.time_limit.has_value()) return std::chrono::steady_clock::time_point::max();
  return begin_ + std::min<std::chrono::milliseconds>(*options_.time_limit, kLongestTime);
}

absl::Status SourceRequest::OpenStream() {
  if (IsStandardInput()) {
    absl::StatusOr<std::unique_ptr<ByteStream>> stream = OpenByteStream(address_, label_);
    if (!stream.ok()) return stream.status();
    stream_ = *std::move(stream);
    return absl::OkStatus();
  }
  const absl::StatusOr<int> descriptor = Open();
  if (!descriptor.ok()) return descriptor.status();
  stream_ = MakeDescriptorStream(*descriptor, label_, Deadline(), options_.stop);
  struct stat stat;
  if (::fstat(*descriptor, &stat) != 0) return FileError(label_, errno);
  if (S_ISDIR(stat.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(label_, ": is a directory"));
  }
  if (S_ISREG(stat.st_mode)) file_bytes_ = static_cast<uint64_t>(stat.st_size);
  is_device_ = S_ISBLK(stat.st_mode);
  is_pipe_ = S_ISFIFO(stat.st_mode);
  if (is_pipe_) {
    if (refuses_pipes_) {
      return absl::InvalidArgumentError(
          absl::StrCat(label_, ": is a pipe, and a pair of images is read at any place"));
    }
    if (absl::Status status = WaitForWriter(*descriptor); !status.ok()) return status;
  }
  // Only opening must not block; a pipe's writer may be slow.
  const int flags = ::fcntl(*descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(*descriptor, F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return FileError(label_, errno);
  }
  return absl::OkStatus();
}

// A pipe that was opened without blocking looks empty until a writer writes to it. Waiting for the
// first bytes, or for the end of a writer without any, does what opening it with blocking would.
absl::Status SourceRequest::WaitForWriter(int pipe) const {
  absl::Status status = WaitReadable(pipe, Deadline(), options_.stop, label_);
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat(label_, ": no writer opened the pipe"));
}

absl::StatusOr<std::shared_ptr<const Image>> SourceRequest::Image() const {
  if (IsStandardInput()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": an image must be a file or a block device, not a stream"));
  }
  const absl::StatusOr<int> descriptor = Open();
  if (!descriptor.ok()) return descriptor.status();
  return cbt::Image::FromDescriptor(*descriptor, label_);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> SourceRequest::Map() {
  const absl::StatusOr<bool> once = IsReadOnce();
  if (!once.ok()) return once.status();
  if (*once) return SpoolToFile(*stream_);
  const absl::StatusOr<int> descriptor = Open();
  if (!descriptor.ok()) return descriptor.status();
  return MappedFile::FromDescriptor(OwnedDescriptor(*descriptor), label_);
}

absl::StatusOr<bool> SourceRequest::IsReadOnce() {
  const absl::StatusOr<ByteStream*> stream = Stream();
  if (!stream.ok()) return stream.status();
  return IsStandardInput() || is_pipe_;
}

absl::StatusOr<ByteStream*> SourceRequest::Stream() {
  if (stream_ == nullptr) {
    if (absl::Status status = OpenStream(); !status.ok()) return status;
  }
  return stream_.get();
}

}  // namespace cbt
