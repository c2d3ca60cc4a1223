// Stands in for your storage: a volume in a file, and snapshots that are copies of it.
#ifndef EXAMPLES_WRITE_TRACKING_STORAGE_H_
#define EXAMPLES_WRITE_TRACKING_STORAGE_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "cbt/extent.h"
#include "cbt/units.h"

inline constexpr uint64_t kCapacity = 64 * cbt::kMiB;
inline constexpr uint64_t kBlock = 4 * cbt::kKiB;

class Storage {
 public:
  explicit Storage(const std::string& directory) : directory_(directory) {
    volume_ = open(PathOf("volume").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  }
  ~Storage() { close(volume_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Creates the volume and its first snapshot if they do not exist.
  absl::Status Start() {
    if (volume_ < 0 || ftruncate(volume_, static_cast<off_t>(kCapacity)) != 0) {
      return absl::ErrnoToStatus(errno, PathOf("volume"));
    }
    return HasSnapshot("monday") ? absl::OkStatus() : TakeSnapshot("monday");
  }

  absl::Status Write(cbt::Extent extent, char byte) {
    const std::string data(extent.length, byte);
    const ssize_t put =
        pwrite(volume_, data.data(), data.size(), static_cast<off_t>(extent.offset));
    if (put == static_cast<ssize_t>(data.size())) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "writing to the volume");
  }

  absl::Status TakeSnapshot(const std::string& name) {
    std::error_code error;
    std::filesystem::copy_file(PathOf("volume"), PathOf(name + ".partial"),
                               std::filesystem::copy_options::overwrite_existing, error);
    if (!error) std::filesystem::rename(PathOf(name + ".partial"), PathOf(name), error);
    return error ? absl::UnavailableError(error.message()) : absl::OkStatus();
  }

  bool HasSnapshot(const std::string& name) const { return std::filesystem::exists(PathOf(name)); }

  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }

 private:
  const std::string directory_;
  int volume_ = -1;
};

#endif  // EXAMPLES_WRITE_TRACKING_STORAGE_H_
