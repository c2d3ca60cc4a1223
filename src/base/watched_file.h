// A small text file that is read again when it changes.
#ifndef CBT_BASE_WATCHED_FILE_H_
#define CBT_BASE_WATCHED_FILE_H_

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/wipe.h"

namespace cbt::rpc {

// The whole file, at most 4 MiB. Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT for one
// that is too large or a directory, UNAVAILABLE when reading fails; all name the path.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

// What tells one state of a file from another.
struct FileState {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = -1;
  timespec modified = {};
  timespec changed = {};  // as who may read it does
  friend bool operator==(const FileState& a, const FileState& b) noexcept {
    return a.device == b.device && a.inode == b.inode && a.size == b.size &&
           a.modified.tv_sec == b.modified.tv_sec && a.modified.tv_nsec == b.modified.tv_nsec &&
           a.changed.tv_sec == b.changed.tv_sec && a.changed.tv_nsec == b.changed.tv_nsec;
  }
};
// size -1 when there is no such file.
FileState StateOf(const std::string& path) noexcept;

// The contents of a file as a Value. Thread safe; a look costs one stat() while nothing changes. A
// file that could not be read is tried again by each look.
template <typename Value>
class WatchedFile {
 public:
  // Turns the text into a value; errors name the line.
  using Parse = std::function<absl::StatusOr<Value>(const std::string& text)>;

  WatchedFile(std::string path, Parse parse) : path_(std::move(path)), parse_(std::move(parse)) {}

  // The present contents, or why they can't be used now.
  absl::StatusOr<std::shared_ptr<const Value>> Get() {
    const FileState state = StateOf(path_);
    std::lock_guard lock(mutex_);
    if (!read_ || !(state == state_)) {
      // Not before the new contents are here: what was in force may be what has been taken back.
      read_ = false;
      bool lasts = true;
      value_ = Load(lasts);
      state_ = state;
      read_ = lasts;
    }
    return value_;
  }

 private:
  // `lasts`: whether it will be the same until the file is another one. It is too large, or a
  // folder, for as long as that; that it could not be read may be over at any moment, and nothing
  // of the file shows when.
  absl::StatusOr<std::shared_ptr<const Value>> Load(bool& lasts) {
    absl::StatusOr<std::string> text = ReadSmallFile(path_);
    if (!text.ok()) {
      lasts = absl::IsInvalidArgument(text.status());
      return text.status();
    }
    // It may be a list of tokens.
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

}  // namespace cbt::rpc

#endif  // CBT_BASE_WATCHED_FILE_H_
