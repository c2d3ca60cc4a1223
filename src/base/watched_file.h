// A small text file that is reread when it changes.
#ifndef CBT_BASE_WATCHED_FILE_H_
#define CBT_BASE_WATCHED_FILE_H_

#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/wipe.h"

namespace cbt {

// Reads a whole file, at most 4 MiB. Errors: as FileError(); INVALID_ARGUMENT if it is too large or
// a directory. All name the path. From a pipe it takes what its writer sends within kPipeTime;
// DEADLINE_EXCEEDED after that. A pipe without a writer is empty.
inline constexpr std::chrono::seconds kPipeTime{5};
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

// Identifies a state of a file.
struct FileState {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = -1;
  timespec modified = {};
  timespec changed = {};  // permissions, for example
  friend bool operator==(const FileState& a, const FileState& b) noexcept {
    return a.device == b.device && a.inode == b.inode && a.size == b.size &&
           a.modified.tv_sec == b.modified.tv_sec && a.modified.tv_nsec == b.modified.tv_nsec &&
           a.changed.tv_sec == b.changed.tv_sec && a.changed.tv_nsec == b.changed.tv_nsec;
  }
};
// size is -1 if there is no such file.
FileState StateOf(const std::string& path) noexcept;

// The contents of a file as a Value. Thread-safe. Get() costs one stat() while nothing changes, and
// retries a file that could not be read.
template <typename Value>
class WatchedFile {
 public:
  // Parses the text; errors name the line.
  using Parse = std::function<absl::StatusOr<Value>(const std::string& text)>;

  WatchedFile(std::string path, Parse parse) : path_(std::move(path)), parse_(std::move(parse)) {}

  // The current contents, or why they can't be used.
  absl::StatusOr<std::shared_ptr<const Value>> Get() {
    const FileState state = StateOf(path_);
    std::lock_guard lock(mutex_);
    if (!read_ || !(state == state_)) {
      // Don't return the old value until the new one is loaded: it may have been revoked.
      read_ = false;
      bool lasts = true;
      value_ = Load(lasts);
      state_ = state;
      read_ = lasts;
    }
    return value_;
  }

 private:
  // `lasts`: whether the result holds until the file changes. Too large, or a directory, it stays
  // until then; a read error may go away at any time without a change of the file.
  absl::StatusOr<std::shared_ptr<const Value>> Load(bool& lasts) {
    absl::StatusOr<std::string> text = ReadSmallFile(path_);
    if (!text.ok()) {
      lasts = absl::IsInvalidArgument(text.status());
      return text.status();
    }
    // The text may contain tokens.
    const Wiper wiper(*text);
    absl::StatusOr<Value> value = parse_(*text);
    if (!value.ok()) {
      return absl::Status(value.status().code(),
                          path_ + ": " + std::string(value.status().message()));
    }
    return std::make_shared<const Value>(*std::move(value));
  }

  const std::string path_;
  const Parse parse_;
  std::mutex mutex_;
  bool read_ = false;
  FileState state_;
  absl::StatusOr<std::shared_ptr<const Value>> value_ = absl::UnknownError("not read yet");
};

}  // namespace cbt

#endif  // CBT_BASE_WATCHED_FILE_H_
