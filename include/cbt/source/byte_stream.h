// Bytes read once, from front to back: files, pipes and memory, as input for the importers of
// change metadata. Part of cbt::source.
#ifndef CBT_SOURCE_BYTE_STREAM_H_
#define CBT_SOURCE_BYTE_STREAM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/lifetime.h"
#include "cbt/units.h"

namespace cbt {

// Belongs to one thread at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // The name in error messages: the path, or the label that was given.
  const std::string& label() const noexcept { return label_; }

  // The number of bytes read and skipped.
  uint64_t position() const noexcept { return position_; }

  // Reads what is available now, at most out.size() (> 0) bytes.
  // Returns: the number of bytes; 0 at the end of the stream and only there.
  // Errors:  UNAVAILABLE when reading fails, ABORTED when a file has become shorter since it was
  //          opened.
  absl::StatusOr<size_t> Read(std::span<uint8_t> out);

  // Fills all of `out`.
  // Errors: DATA_LOSS naming the position when the stream ends early; as Read().
  absl::Status ReadAll(std::span<uint8_t> out);

  // Skips `count` bytes; costs nothing if the input is seekable.
  // Errors: as ReadAll(): a stream that ends early is always an error.
  absl::Status Skip(uint64_t count);

  // Copies the next bytes to `out` without consuming them, up to out.size() (at most kMaxPeek);
  // fewer only at the end of the stream. Used to detect formats.
  absl::StatusOr<size_t> Peek(std::span<uint8_t> out);
  static constexpr size_t kMaxPeek = 64 * kKiB;

 protected:
  explicit ByteStream(std::string label) : label_(std::move(label)) {}

  virtual absl::StatusOr<size_t> DoRead(std::span<uint8_t> out) = 0;

  // Skips at most `count` (> 0) bytes; fewer only at the end of the stream.
  // Returns: the number of bytes.
  virtual absl::StatusOr<uint64_t> DoSkip(uint64_t count);

 private:
  absl::Status EndsEarly(uint64_t missing) const;

  const std::string label_;
  uint64_t position_ = 0;
  std::string peeked_;      // bytes that Peek() has read ahead
  size_t peeked_used_ = 0;  // how many of them have been consumed since
};

// The file, device or pipe at `path`; "-" is standard input. `label` replaces the path in messages.
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a directory), UNAVAILABLE.
absl::StatusOr<std::unique_ptr<ByteStream>> OpenByteStream(const std::string& path,
                                                           std::string_view label = {});

// As above for a descriptor open for reading, from its current position; takes ownership. A read
// after `deadline` is DEADLINE_EXCEEDED, one after `stop` was requested CANCELLED; both end the
// wait for a pipe's writer.
std::unique_ptr<ByteStream> MakeDescriptorStream(
    int descriptor, std::string_view label,
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max(),
    std::stop_token stop = {});

// The stream keeps `bytes`: a string or a vector that is moved in, or bytes with their owner.
std::unique_ptr<ByteStream> MakeMemoryStream(SharedBytes bytes, std::string_view label);

// The same over bytes that the caller keeps until the stream is gone.
std::unique_ptr<ByteStream> MakeBorrowedMemoryStream(std::span<const uint8_t> bytes,
                                                     std::string_view label);
// A temporary would dangle: MakeMemoryStream() keeps it.
template <TemporaryBytes Bytes>
std::unique_ptr<ByteStream> MakeBorrowedMemoryStream(Bytes&& bytes,
                                                     std::string_view label) = delete;

}  // namespace cbt

#endif  // CBT_SOURCE_BYTE_STREAM_H_
