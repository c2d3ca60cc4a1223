// An incremental backup that can be killed and continued.
//
//   client ADDRESS BASE TARGET VOLUME BACKUP
//
// BACKUP is a copy of the snapshot BASE and becomes one of TARGET; VOLUME is a file with TARGET's
// data. BACKUP.checkpoint has the progress until the backup is complete.
#include "cbt/rpc/client.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <utility>
#include <vector>

#include "cbt/units.h"
#include "checkpoint.h"

// Copies one range. Your backup application has something better here.
absl::Status Copy(int volume, int backup, const cbt::Extent& range) {
  std::vector<char> data(cbt::kMiB);
  uint64_t offset = range.offset;
  while (offset < range.end()) {
    const size_t want = std::min<uint64_t>(data.size(), range.end() - offset);
    const ssize_t got = pread(volume, data.data(), want, static_cast<off_t>(offset));
    if (got < 0) return absl::ErrnoToStatus(errno, "reading the volume");
    if (got == 0) return absl::DataLossError("the volume ends before its capacity");
    const ssize_t put =
        pwrite(backup, data.data(), static_cast<size_t>(got), static_cast<off_t>(offset));
    if (put < 0) return absl::ErrnoToStatus(errno, "writing the backup");
    offset += static_cast<uint64_t>(put);
  }
  return absl::OkStatus();
}

// [backup]
// Continues at the checkpoint, and advances it.
absl::Status Backup(cbt::rpc::ListRequest request, int volume, int backup,
                    const std::string& checkpoint_path) {
  absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(checkpoint_path);
  if (!checkpoint.ok()) return checkpoint.status();
  const std::string& base = *request.base_snapshot_id;
  const std::string& target = request.snapshot_id;
  if (checkpoint->offset == 0) {
    *checkpoint = {.offset = 0, .version = {}, .base = base, .target = target};
  }
  if (checkpoint->base != base || checkpoint->target != target) {
    return absl::FailedPreconditionError("the checkpoint is of other snapshots");
  }
  request.starting_offset = checkpoint->offset;
  request.source_version = checkpoint->version;
  request.require_proof = true;
  request.on_resume = [](uint64_t at, const absl::Status& reason) {
    std::fprintf(stderr, "resuming at %" PRIu64 ": %s\n", at, reason.ToString().c_str());
  };

  auto stream = cbt::rpc::RemoteCursor::Open(request);
  if (!stream.ok()) return stream.status();
  cbt::rpc::RemoteCursor& cursor = **stream;
  std::printf("starting at %" PRIu64 "\n", checkpoint->offset);
  checkpoint->version = cursor.source_version();

  return cbt::ForEachBatch(cursor, [&](const cbt::ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (auto status = Copy(volume, backup, batch[i]); !status.ok()) return status;
    }
    // Flush the data first, then record it in the checkpoint.
    if (fdatasync(backup) != 0) return absl::ErrnoToStatus(errno, "syncing the backup");
    checkpoint->offset = cursor.covered();
    if (auto status = WriteCheckpoint(*checkpoint, checkpoint_path); !status.ok()) return status;
    std::printf("covered %" PRIu64 "\n", checkpoint->offset);
    std::fflush(stdout);
    return absl::OkStatus();
  });
}
// [/backup]

absl::Status Run(char** argv) {
  cbt::rpc::ListRequest request;
  request.address = argv[1];
  request.base_snapshot_id = argv[2];  // leave it out for a full backup
  request.snapshot_id = argv[3];
  const int volume = open(argv[4], O_RDONLY | O_CLOEXEC);
  if (volume < 0) return absl::ErrnoToStatus(errno, argv[4]);
  const int backup = open(argv[5], O_WRONLY | O_CLOEXEC);
  if (backup < 0) return absl::ErrnoToStatus(errno, argv[5]);
  const std::string checkpoint = std::string(argv[5]) + ".checkpoint";
  if (auto status = Backup(std::move(request), volume, backup, checkpoint); !status.ok()) {
    return status;
  }
  // Complete: every message was checked, and the server proved that none is missing.
  if (unlink(checkpoint.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, checkpoint);
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: client ADDRESS BASE TARGET VOLUME BACKUP\n");
    return 2;
  }
  const absl::Status status = Run(argv);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  std::printf("complete\n");
  return 0;
}
