// An incremental backup that can be killed and continued.
//
//   client ADDRESS BASE TARGET VOLUME BACKUP
//
// BACKUP is a copy of the snapshot BASE and becomes one of TARGET; VOLUME is a file with TARGET's
// data. BACKUP.checkpoint has the progress until the backup is complete.
#include "cbt/rpc/client.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <stop_token>
#include <utility>

#include "cbt/source/copy_ranges.h"
#include "cbt/units.h"
#include "checkpoint.h"

// [backup]
// Continues at the checkpoint, and advances it.
absl::Status Backup(cbt::rpc::ListRequest request, const cbt::CopyInput& volume,
                    cbt::CopyOutput& backup, const std::string& checkpoint_path) {
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

  absl::Status recorded;
  std::stop_source stop;
  cbt::CopyOptions options = {.stop = stop.get_token()};
  options.on_progress = [&](const cbt::CopyProgress& done) {
    constexpr uint64_t kStep = 16 * cbt::kMiB;
    const bool due = done.covered >= checkpoint->offset + kStep;
    const bool last = done.covered == cursor.capacity() && done.covered > checkpoint->offset;
    if (!recorded.ok() || (!due && !last)) return;
    // Flush the data first, then record it in the checkpoint.
    recorded = backup.Sync();
    checkpoint->offset = done.covered;
    if (recorded.ok()) recorded = WriteCheckpoint(*checkpoint, checkpoint_path);
    if (!recorded.ok()) stop.request_stop();
    std::printf("covered %" PRIu64 "\n", checkpoint->offset);
    std::fflush(stdout);
  };
  // Returns OK only for a stream that is complete.
  const auto copied = cbt::CopyRanges(cursor, volume, backup, options);
  return recorded.ok() ? copied.status() : recorded;
}
// [/backup]

absl::Status Run(char** argv) {
  cbt::rpc::ListRequest request;
  request.address = argv[1];
  request.base_snapshot_id = argv[2];  // leave it out for a full backup
  request.snapshot_id = argv[3];
  auto volume = cbt::Image::Open(argv[4]);
  if (!volume.ok()) return volume.status();
  const int backup = open(argv[5], O_WRONLY | O_CLOEXEC);
  if (backup < 0) return absl::ErrnoToStatus(errno, argv[5]);
  const auto output = cbt::MakeCopyOutput(backup, argv[5]);
  const std::string checkpoint = std::string(argv[5]) + ".checkpoint";
  const absl::Status status =
      Backup(std::move(request), *cbt::MakeCopyInput(*volume), *output, checkpoint);
  close(backup);
  if (!status.ok()) return status;
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
