// Bytes that are read once, from the front: files, pipes and memory, as the importers of change
// metadata take them. Part of cbt::source.
#ifndef CBT_SOURCE_BYTE_STREAM_H_
#define CBT_SOURCE_BYTE_STREAM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt {

// Belongs to one thread at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // What error messages call it: the path, or the name that was given.
  const std::string& label() const noexcept { return label_; }

  // How many bytes have been read and skipped.
  uint64_t position() const noexcept { return position_; }

  // Fills `out` (not empty) as far as there is something to read now.
  // Returns: the number of bytes; 0 at the end and only there.
  // Errors:  UNAVAILABLE when reading fails, ABORTED when a file got shorter since it was opened.
  absl::StatusOr<size_t> Read(std::span<uint8_t> out);

  // Fills `out` whole.
  // Errors: DATA_LOSS that names the position when the stream ends before; as Read().
  absl::Status ReadAll(std::span<uint8_t> out);

  // Passes over `count` bytes; costs nothing where the input can be positioned.
  // Errors: as ReadAll(): a stream that ends before is never taken for one that doesn't.
  absl::Status Skip(uint64_t count);

  // Copies the next bytes to `out` without taking them, as many as there are up to out.size() (at
  // most kMaxPeek): less only when the stream ends there. For telling formats apart.
  absl::StatusOr<size_t> Peek(std::span<uint8_t> out);
  static constexpr size_t kMaxPeek = size_t{64} << 10;

 protected:
  explicit ByteStream(std::string label) : label_(std::move(label)) {}

  virtual absl::StatusOr<size_t> DoRead(std::span<uint8_t> out) = 0;

  // Passes over at most `count` (> 0) bytes; less only at the end of the stream.
  // Returns: the number of bytes.
  virtual absl::StatusOr<uint64_t> DoSkip(uint64_t count);

 private:
  absl::Status EndsEarly(uint64_t missing) const;

  const std::string label_;
  uint64_t position_ = 0;
  std::string peeked_;      // bytes that were read ahead by Peek() ...
  size_t peeked_used_ = 0;  // ... and how many of them have been taken since
};

// The file, device or pipe at `path`; "-" is the standard input. `label` stands for the path in
// messages.
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a directory), UNAVAILABLE.
absl::StatusOr<std::unique_ptr<ByteStream>> OpenByteStream(const std::string& path,
                                                           std::string_view label = {});

// As above for a descriptor that is open for reading, from where it stands; takes it over. Reading
// after `deadline` is DEADLINE_EXCEEDED; one that waits for a pipe's writer by then is not broken
// off.
std::unique_ptr<ByteStream> MakeDescriptorStream(
    int descriptor, std::string_view label,
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());

// `bytes` belong to somebody else and must outlive the stream.
std::unique_ptr<ByteStream> MakeMemoryStream(std::span<const uint8_t> bytes,
                                             std::string_view label);

}  // namespace cbt

#endif  // CBT_SOURCE_BYTE_STREAM_H_
