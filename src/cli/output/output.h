// Text output that never hides a failed write.
#ifndef CBT_CLI_OUTPUT_OUTPUT_H_
#define CBT_CLI_OUTPUT_OUTPUT_H_

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

namespace cbt::cli {

// A buffered descriptor. The first error sticks; what is appended later is dropped, so writers look
// at status() once a batch instead of after every tuple. Belongs to one thread at a time.
class Output {
 public:
  // `name` stands for the descriptor in errors. The descriptor stays the caller's until Close().
  Output(int descriptor, std::string name);
  ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Called before each write, for whoever shares the terminal.
  void set_before_write(std::function<void()> hook) { before_write_ = std::move(hook); }

  // Room for `size` (<= kMaxRecord) bytes that are handed over with Commit(). Records that are
  // written in one piece are never torn by a flush.
  static constexpr size_t kMaxRecord = 4096;
  char* Reserve(size_t size) {
    if (kBufferBytes - size_ < size) Flush();
    return buffer_.get() + size_;
  }
  // `end`: the first byte after what was written at the last Reserve().
  void Commit(const char* end) noexcept { size_ = static_cast<size_t>(end - buffer_.get()); }

  // Appends text of any length.
  void Append(std::string_view text);

  void Flush();

  // Flushes when the last flush is some time ago, so that a reader at the other end of a pipe sees
  // what is known while a long stream is quiet.
  void FlushIfDue();

  // Flushes and closes the descriptor: some file systems tell of a full disk only then.
  absl::Status Close();

  const absl::Status& status() const noexcept { return status_; }

 private:
  static constexpr size_t kBufferBytes = size_t{64} << 10;

  const int descriptor_;
  const std::string name_;
  std::unique_ptr<char[]> buffer_;
  size_t size_ = 0;
  absl::Status status_;
  std::function<void()> before_write_;
  std::chrono::steady_clock::time_point flushed_;
};

// The most digits of a number.
inline constexpr size_t kMaxDigits = 20;

// Appends at `out`, which has the room; returns the end. For what goes into Output::Reserve().
inline char* PutText(char* out, std::string_view text) noexcept {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}
inline char* PutNumber(char* out, uint64_t value) noexcept {
  return std::to_chars(out, out + kMaxDigits, value).ptr;
}

}  // namespace cbt::cli

#endif  // CBT_CLI_OUTPUT_OUTPUT_H_
