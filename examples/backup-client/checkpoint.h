// The progress of a backup, in a small file beside it.
#ifndef EXAMPLES_BACKUP_CLIENT_CHECKPOINT_H_
#define EXAMPLES_BACKUP_CLIENT_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct Checkpoint {
  uint64_t offset = 0;  // everything below is in the backup, on disk
  std::string version;  // of the snapshot's data, RemoteCursor::source_version()
  std::string base;     // what is being copied: the delta of these two snapshots
  std::string target;
};

// The checkpoint in the file, or the start if there is no file.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path);

// Replaces the file: after a crash it is the old one or the new one.
absl::Status WriteCheckpoint(const Checkpoint& checkpoint, const std::string& path);

#endif  // EXAMPLES_BACKUP_CLIENT_CHECKPOINT_H_
