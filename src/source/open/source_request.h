// A source to be opened: its address, its format, and its options.
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

// Whether `format`, named by `spec` or detected, takes the options of `spec`.
// Errors: those of ParseSourceSpec().
absl::Status CheckSourceOptions(SourceFormat format, const SourceSpec& spec);

// True for nbd://, nbds://, nbd+unix:// and nbds+unix://.
bool IsNbdAddress(std::string_view address);

// True if the path's extension is one that files of `format` have and volumes don't.
bool HasNameOf(SourceFormat format, std::string_view path);

// What files with the path's extension hold, where that is no raw volume: a format that can be
// read, another format of images, or compressed data. Empty for all other names.
std::string_view ContentByName(std::string_view path);

class SourceRequest {
 public:
  SourceRequest(std::string address, const SourceOptions& options);

  // For a side of a pair, which has to be read at any place: a pipe is refused before it is waited
  // for. Call before Prepare().
  void RefusePipes() noexcept { refuses_pipes_ = true; }

  // Determines the format, and checks that it takes the given options. Waits for the writer of a
  // pipe.
  absl::Status Prepare();

  SourceFormat format() const noexcept { return format_; }
  const std::string& address() const noexcept { return address_; }
  const std::string& label() const noexcept { return label_; }
  const SourceOptions& options() const noexcept { return options_; }
  // True if the block size was left to the source; options() has the default then.
  bool own_block_size() const noexcept { return own_block_size_; }
  // True if the address is that of a pipe or of standard input, which can be read only once. Waits
  // for the writer of a pipe.
  absl::StatusOr<bool> IsReadOnce();

  // The value of an option of the spec.
  std::optional<std::string> Option(std::string_view key) const;
  // Reads a numeric option (with a suffix, see ParseNumber()); `out` is unchanged if it is not
  // given.
  absl::Status Number(std::string_view key, uint64_t max, uint64_t& out) const;
  // Reads an option with two possible words: `out` becomes true for the second.
  absl::Status Choice(std::string_view key, std::string_view no, std::string_view yes,
                      bool& out) const;

  // The file, in the form that its format needs. Each opens it again except the stream, which the
  // detection used. A pipe or standard input is mapped as a copy of all that it holds.
  absl::StatusOr<std::shared_ptr<const cbt::Image>> Image() const;
  absl::StatusOr<std::shared_ptr<const MappedFile>> Map();
  absl::StatusOr<ByteStream*> Stream();

 private:
  // False with an opener: callers that restrict files have no standard input to offer.
  bool IsStandardInput() const noexcept { return address_ == "-" && !options_.open; }
  absl::Status FindFormat();
  absl::Status CheckName() const;
  absl::Status CheckIsNoVolume() const;
  absl::StatusOr<int> Open() const;
  absl::Status OpenStream();
  absl::Status WaitForWriter(int pipe) const;
  std::chrono::steady_clock::time_point Deadline() const;

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const std::string address_;
  const SourceOptions options_;
  const bool own_block_size_;
  std::string label_;
  SourceFormat format_ = SourceFormat::kImage;
  std::unique_ptr<ByteStream> stream_;
  std::optional<uint64_t> file_bytes_;  // of a regular file that the stream reads
  bool is_device_ = false;              // the stream reads a block device
  bool is_pipe_ = false;                // the stream reads a pipe
  bool refuses_pipes_ = false;
};

}  // namespace cbt

#endif  // CBT_SOURCE_OPEN_SOURCE_REQUEST_H_
