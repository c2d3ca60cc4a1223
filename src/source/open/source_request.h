// One source on its way to be opened: its address, its format, what was said about it.
#ifndef CBT_SOURCE_OPEN_SOURCE_REQUEST_H_
#define CBT_SOURCE_OPEN_SOURCE_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_io.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/image.h"
#include "cbt/source/open.h"

namespace cbt {

// Whether `format`, be it that of `spec` or one that was found out, takes the options of `spec`.
// Errors: those of ParseSourceSpec().
absl::Status CheckSourceOptions(SourceFormat format, const SourceSpec& spec);

// True for nbd://, nbds://, nbd+unix:// and nbds+unix://.
bool IsNbdAddress(std::string_view address);

// True when the path's extension is one that files of `format` have and volumes don't.
bool HasNameOf(SourceFormat format, std::string_view path);

class SourceRequest {
 public:
  // `options` must outlive the request.
  SourceRequest(std::string address, const SourceOptions& options);

  // Finds out the format, and whether it has the options that were given. First of all.
  absl::Status Prepare();

  SourceFormat format() const noexcept { return format_; }
  const std::string& address() const noexcept { return address_; }
  const std::string& label() const noexcept { return label_; }
  const SourceOptions& options() const noexcept { return options_; }
  // Those who confine what is opened have no standard input to give.
  bool IsStandardInput() const noexcept { return address_ == "-" && !options_.open; }

  // The value of an option of the spec.
  std::optional<std::string> Option(std::string_view key) const;
  // Reads an option that is a number (with a suffix, see ParseNumber()); leaves `out` where it was
  // not given.
  absl::Status Number(std::string_view key, uint64_t max, uint64_t& out) const;
  // Reads an option that is one of two words: `out` becomes true for the second.
  absl::Status Choice(std::string_view key, std::string_view no, std::string_view yes,
                      bool& out) const;

  // The file, in the way that its format is read; each opens it anew but for the stream, from which
  // the format was told.
  absl::StatusOr<std::shared_ptr<const cbt::Image>> Image() const;
  absl::StatusOr<std::shared_ptr<const MappedFile>> Map() const;
  absl::StatusOr<ByteStream*> Stream();

 private:
  absl::Status FindFormat();
  absl::Status CheckIsNoVolume() const;
  absl::StatusOr<int> Open() const;
  absl::Status OpenStream();
  std::chrono::steady_clock::time_point Deadline() const;

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const std::string address_;
  const SourceOptions options_;
  std::string label_;
  SourceFormat format_ = SourceFormat::kImage;
  std::unique_ptr<ByteStream> stream_;
  std::optional<uint64_t> file_bytes_;  // of a regular file that the stream reads
  bool is_device_ = false;              // the stream reads a block device
};

}  // namespace cbt

#endif  // CBT_SOURCE_OPEN_SOURCE_REQUEST_H_
