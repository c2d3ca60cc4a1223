#include "bucket/credential_watch.h"

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/watched_file.h"

namespace cbt::bucket {
namespace {

// Credentials of a few files, which are read again once one of them is another.
class CredentialWatch final : public S3CredentialSource {
 public:
  using Read = std::function<absl::StatusOr<S3Credentials>()>;

  CredentialWatch(std::vector<std::string> paths, Read read)
      : paths_(std::move(paths)), read_(std::move(read)) {}

  Current Get() override {
    const std::lock_guard lock(mutex_);
    std::vector<FileState> states = States();
    if (!settled_ || states != states_) Refresh(std::move(states));
    return current_;
  }

 private:
  std::vector<FileState> States() const {
    std::vector<FileState> states;
    for (const std::string& path : paths_) states.push_back(StateOf(path));
    return states;
  }

  // Two keys that were read from before and after a change are no pair.
  void Refresh(std::vector<FileState> before) {
    constexpr int kTries = 5;
    settled_ = false;
    for (int i = 0; i < kTries; ++i) {
      absl::StatusOr<S3Credentials> read = read_();
      std::vector<FileState> after = States();
      const bool same = after == before;
      before = std::move(after);
      if (!read.ok()) {
        current_.trouble = read.status();
        return;
      }
      if (!same) continue;
      current_.credentials = std::make_shared<const S3Credentials>(*std::move(read));
      current_.trouble = absl::OkStatus();
      states_ = std::move(before);
      settled_ = true;
      return;
    }
    current_.trouble = absl::UnavailableError("the credentials change while they are read");
  }

  const std::vector<std::string> paths_;
  const Read read_;
  std::mutex mutex_;
  bool settled_ = false;  // `current_` is what the files say in `states_`
  std::vector<FileState> states_;
  Current current_;
};

}  // namespace

std::shared_ptr<S3CredentialSource> WatchS3CredentialFile(std::string path, std::string profile) {
  std::vector<std::string> paths = {path};
  return std::make_shared<CredentialWatch>(std::move(paths),
                                           [path = std::move(path), profile = std::move(profile)] {
                                             return S3CredentialsFromFile(path, profile);
                                           });
}

std::shared_ptr<S3CredentialSource> WatchS3CosiCredentials(std::string path) {
  // Files of a mount that are missing have a state too.
  std::vector<std::string> paths = {path, path + "/BucketInfo", path + "/COSI_S3_ACCESS_KEY_ID",
                                    path + "/COSI_S3_ACCESS_SECRET_KEY"};
  return std::make_shared<CredentialWatch>(
      std::move(paths), [path = std::move(path)]() -> absl::StatusOr<S3Credentials> {
        absl::StatusOr<S3Place> place = ReadS3CosiPlace(path);
        if (!place.ok()) return place.status();
        return std::move(place->credentials);
      });
}

}  // namespace cbt::bucket
