// Tracks the writes of two threads, takes a snapshot, and survives a crash.
//
//   tracking FOLDER          writes, and takes the snapshot "tuesday"
//   tracking FOLDER crash    dies in the middle of the writes
//
// The changes from Monday to Tuesday are then in FOLDER/tuesday.cbm.
#include <csignal>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "cbt/change_map_file.h"
#include "cbt/change_tracker.h"
#include "cbt/units.h"
#include "storage.h"

// [write]
absl::Status Write(cbt::ChangeTracker& tracker, Storage& storage, cbt::Extent extent) {
  auto write = tracker.Begin(extent);      // before the data can reach the storage
  if (!write.ok()) return write.status();  // then do not issue the write
  absl::Status status = storage.Write(extent, 'x');
  write->End();  // once the storage has completed it, or it has failed
  return status;
}
// [/write]

// [snapshot]
// Ends the older epoch and keeps its map.
absl::Status KeepChanges(cbt::ChangeTracker& tracker, Storage& storage) {
  auto map = tracker.CloseEpoch();
  if (!map.ok()) return map.status();
  auto written = cbt::WriteChangeMap(*map, storage.PathOf(map->identity().target + ".cbm"));
  if (!written.ok()) return written.status();  // CloseEpoch() returns the map again
  return tracker.Acknowledge(map->identity());
}

absl::Status Snapshot(cbt::ChangeTracker& tracker, Storage& storage, const std::string& name) {
  if (auto status = tracker.OpenEpoch(name); !status.ok()) return status;
  if (auto status = storage.TakeSnapshot(name); !status.ok()) {
    tracker.CancelEpoch().IgnoreError();  // if that fails too, the next run cancels it
    return status;
  }
  return KeepChanges(tracker, storage);
}
// [/snapshot]

// [open]
// Opens the tracker of the last run, or creates one.
absl::StatusOr<std::unique_ptr<cbt::ChangeTracker>> OpenTracker(Storage& storage) {
  cbt::TrackerOptions options;
  options.geometry = {.capacity = kCapacity, .granularity = kBlock};
  options.volume = "vol1";
  options.base = "monday";
  options.directory = storage.PathOf("tracker");
  options.region_bytes = cbt::kMiB;
  auto tracker = cbt::ChangeTracker::Recover(options);
  if (absl::IsNotFound(tracker.status())) return cbt::ChangeTracker::Create(options);
  if (!tracker.ok()) return tracker.status();

  const auto epochs = (*tracker)->epochs();
  if (epochs.size() == 2) {  // the last run stopped in the middle of Snapshot()
    const bool taken = epochs[0].closed || storage.HasSnapshot(epochs[1].base);
    const absl::Status status = taken ? KeepChanges(**tracker, storage) : (*tracker)->CancelEpoch();
    if (!status.ok()) return status;
  }
  return tracker;
}
// [/open]

// One of the threads that write.
absl::Status WriteMany(cbt::ChangeTracker& tracker, Storage& storage, unsigned seed, bool crash) {
  std::minstd_rand random(seed);
  for (int i = 0; i < 100; ++i) {
    const uint64_t block = random() % (kCapacity / kBlock);
    if (auto status = Write(tracker, storage, {block * kBlock, 100}); !status.ok()) return status;
    if (crash && i == 50) std::raise(SIGKILL);
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& directory, bool crash) {
  Storage storage(directory);
  if (auto status = storage.Start(); !status.ok()) return status;
  auto tracker = OpenTracker(storage);
  if (!tracker.ok()) return tracker.status();

  absl::Status other;
  std::thread thread([&] { other = WriteMany(**tracker, storage, 1, false); });
  absl::Status status = WriteMany(**tracker, storage, 2, crash);
  thread.join();
  if (!status.ok()) return status;
  if (!other.ok()) return other;

  if (!storage.HasSnapshot("tuesday")) {
    if (status = Snapshot(**tracker, storage, "tuesday"); !status.ok()) return status;
  }
  return (*tracker)->Close();  // exact: the next Recover() adds nothing
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tracking FOLDER [crash]\n");
    return 2;
  }
  const absl::Status status = Run(argv[1], /*crash=*/argc > 2);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
