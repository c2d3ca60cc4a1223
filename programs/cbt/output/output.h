// Text output that never hides a failed write.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_OUTPUT_H_
#define CBT_PROGRAMS_CBT_OUTPUT_OUTPUT_H_

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/units.h"

namespace cbt::cli {

// A buffered descriptor. The first error sticks and later output is dropped, so writers check
// status() once per batch instead of after every tuple. Belongs to one thread at a time.
class Output {
 public:
  // `name` is used in errors. The caller keeps ownership of the descriptor until Close().
  Output(int descriptor, std::string name);
  ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Called before each write, for other writers to the terminal.
  void set_before_write(std::function<void()> hook) { before_write_ = std::move(hook); }

  // Space for `size` (<= kMaxRecord) bytes, to be handed over with Commit(). A flush never splits a
  // record that is written in one piece.
  static constexpr size_t kMaxRecord = 4096;
  char* Reserve(size_t size) {
    if (kBufferBytes - size_ < size) Flush();
    return buffer_.get() + size_;
  }
  // `end`: one past the last byte written since Reserve().
  void Commit(const char* end) noexcept { size_ = static_cast<size_t>(end - buffer_.get()); }

  // Appends text of any length.
  void Append(std::string_view text);

  void Flush();

  // Flushes if the last flush was some time ago, so that the reader of a pipe sees what is known
  // while a long stream is quiet.
  void FlushIfDue();

  // Flushes and closes the descriptor: some file systems report a full disk only then.
  absl::Status Close();

  // See ReaderGone() for a pipe that its reader has closed.
  const absl::Status& status() const noexcept { return status_; }

 private:
  static constexpr size_t kBufferBytes = 64 * kKiB;

  const int descriptor_;
  const std::string name_;
  std::unique_ptr<char[]> buffer_;
  size_t size_ = 0;
  absl::Status status_;
  std::function<void()> before_write_;
  std::chrono::steady_clock::time_point flushed_;
};

// The maximum number of digits.
inline constexpr size_t kMaxDigits = 20;

// Appends at `out`, which must have space; returns the end. For memory from Output::Reserve().
inline char* PutText(char* out, std::string_view text) noexcept {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}
inline char* PutNumber(char* out, uint64_t value) noexcept {
  return std::to_chars(out, out + kMaxDigits, value).ptr;
}

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_OUTPUT_H_
