#include "checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0 && errno == ENOENT) return Checkpoint{};
  std::ifstream file(path);
  Checkpoint checkpoint;
  if (!(file >> checkpoint.offset) || file.get() != ' ' ||
      !std::getline(file, checkpoint.version) || !std::getline(file, checkpoint.base) ||
      !std::getline(file, checkpoint.target) || file.eof()) {
    return absl::DataLossError(absl::StrCat(path, ": is not a checkpoint; start a new backup"));
  }
  return checkpoint;
}

absl::Status WriteCheckpoint(const Checkpoint& checkpoint, const std::string& path) {
  const std::string text = absl::StrCat(checkpoint.offset, " ", checkpoint.version, "\n",
                                        checkpoint.base, "\n", checkpoint.target, "\n");
  const std::string partial = path + ".partial";
  const int file = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return absl::ErrnoToStatus(errno, partial);
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  const absl::Status status = written ? absl::OkStatus() : absl::ErrnoToStatus(errno, partial);
  close(file);
  if (!status.ok()) return status;
  if (rename(partial.c_str(), path.c_str()) != 0) return absl::ErrnoToStatus(errno, path);
  return absl::OkStatus();
}
