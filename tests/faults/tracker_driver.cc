// Tracks writes, for tests that make each system call fail.
//
//   tracker_driver run DIR      writes to blocks of a volume over several epochs; prints `try N`
//                               before each, and a line for everything acknowledged:
//                               `block N`, `epoch`, `map N N ...`
//   tracker_driver recover DIR  prints each epoch's changes, oldest first: `map N N ...`, after
//                               `exact` if the map is exact
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_tracker.h"

namespace {

constexpr uint64_t kBlock = 4096;

// Flushed before the next step, however the process ends.
void Say(const std::string& line) {
  std::fprintf(stdout, "%s\n", line.c_str());
  std::fflush(stdout);
}

bool Failed(const absl::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return !status.ok();
}

void SayMap(const cbt::ChangeMap& map) {
  std::string line = "map";
  const std::unique_ptr<cbt::ExtentCursor> cursor = cbt::MakeChangeMapCursor(map);
  cbt::ForEachBatch(*cursor, [&line](const cbt::ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      for (uint64_t b = batch[i].offset; b < batch[i].end(); b += kBlock) {
        absl::StrAppend(&line, " ", b / kBlock);
      }
    }
    return absl::OkStatus();
  }).IgnoreError();
  Say(line);
}

void SayExact(const cbt::ChangeTracker::Epoch& epoch) {
  if (epoch.exact) Say("exact");
}

int Run(const cbt::TrackerOptions& options) {
  absl::StatusOr<std::unique_ptr<cbt::ChangeTracker>> made = cbt::ChangeTracker::Create(options);
  if (Failed(made.status())) return 3;
  cbt::ChangeTracker& tracker = **made;
  const auto write = [&tracker](uint64_t block) {
    Say(absl::StrCat("try ", block));
    const absl::StatusOr<cbt::TrackedWrite> begun = tracker.Begin({block * kBlock, kBlock});
    if (Failed(begun.status())) return false;
    Say(absl::StrCat("block ", block));
    return true;
  };
  bool sound = write(1) && write(301);
  sound &= !Failed(tracker.Checkpoint());
  sound &= write(2) && write(601);
  if (!Failed(tracker.OpenEpoch("next"))) {
    Say("epoch");
    sound &= write(901);
    const absl::StatusOr<cbt::ChangeMap> map = tracker.CloseEpoch();
    if (Failed(map.status())) {
      sound = false;
    } else {
      SayMap(*map);
      sound &= !Failed(tracker.Acknowledge(map->identity()));
    }
  } else {
    sound = false;
  }
  sound &= write(11);
  sound &= !Failed(tracker.Checkpoint());
  sound &= write(321);
  if (!Failed(tracker.OpenEpoch("last"))) {
    sound &= !Failed(tracker.CancelEpoch());
  } else {
    sound = false;
  }
  sound &= write(21);
  sound &= !Failed(tracker.Close());
  if (sound) Say("closed");
  return sound ? 0 : 3;
}

int Recover(const cbt::TrackerOptions& options) {
  absl::StatusOr<std::unique_ptr<cbt::ChangeTracker>> tracker =
      cbt::ChangeTracker::Recover(options);
  if (Failed(tracker.status())) return absl::IsNotFound(tracker.status()) ? 2 : 3;
  const std::vector<cbt::ChangeTracker::Epoch> epochs = (*tracker)->epochs();
  if (epochs.size() == 2 && epochs[1].base == "last") {
    // That snapshot was never taken.
    if (Failed((*tracker)->CancelEpoch())) return 3;
  } else if (epochs.size() == 2) {
    SayExact(epochs[0]);
    const absl::StatusOr<cbt::ChangeMap> map = (*tracker)->CloseEpoch();
    if (Failed(map.status())) return 3;
    SayMap(*map);
  }
  const absl::StatusOr<cbt::ChangeMap> map = (*tracker)->Changes();
  if (Failed(map.status())) return 3;
  SayExact((*tracker)->epochs().back());
  SayMap(*map);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const cbt::TrackerOptions options = {.geometry = {1000 * kBlock, kBlock},
                                       .volume = "vol",
                                       .base = "first",
                                       .directory = argv[2],
                                       .region_bytes = 10 * kBlock};
  return std::strcmp(argv[1], "run") == 0 ? Run(options) : Recover(options);
}
