// The newest usable contents of a small file.
#ifndef CBT_KUBE_CLIENT_LATEST_FILE_H_
#define CBT_KUBE_CLIENT_LATEST_FILE_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "base/wipe.h"
#include "cbt/secrets.h"

namespace cbt::kube {

// Keeps what it has while the file can't be read or is of no use: a file that is being replaced
// must not cut a client off. Not thread safe.
class LatestFile {
 public:
  // OK if the text can be used; errors say why not, without the text.
  using Check = std::function<absl::Status(std::string_view text)>;

  LatestFile(std::string path, Check check) : path_(std::move(path)), check_(std::move(check)) {}

  // Looks whether the file has changed, and reads it then; `force`: in any case. Returns whether
  // value() has changed. Errors, only while there has never been a value: those of reading the
  // file, all with its path.
  absl::StatusOr<bool> Update(bool force = false) {
    const FileState state = StateOf(path_);
    if (!force && has_value_ && state == state_) return false;
    absl::StatusOr<std::string> text = ReadSmallFile(path_);
    absl::Status status = text.status();
    if (status.ok()) {
      if (status = check_(*text); !status.ok()) {
        status = absl::Status(status.code(), path_ + ": " + std::string(status.message()));
      }
    }
    if (!status.ok()) {
      if (text.ok()) WipeWhole(*text);
      if (has_value_) return false;
      return status;
    }
    const Wiper wiper(*text);
    state_ = state;
    const bool changed = !has_value_ || !value_.Equals(*text);
    value_ = Secret(*text);
    has_value_ = true;
    return changed;
  }

  const Secret& value() const noexcept { return value_; }

 private:
  const std::string path_;
  const Check check_;
  FileState state_;
  bool has_value_ = false;
  Secret value_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_LATEST_FILE_H_
