// A disk that loses power: synced changes survive, and any part of the others may.
#ifndef CBT_TESTS_FAULTS_SUPPORT_CRASH_DISK_H_
#define CBT_TESTS_FAULTS_SUPPORT_CRASH_DISK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/support/disk_recorder.h"

namespace cbt::test {

// Files and directories by path.
struct DiskState {
  std::set<std::string> directories;
  std::map<std::string, std::vector<uint8_t>> files;

  uint64_t Hash() const;
  // Replaces the contents of `directory` with this state.
  void WriteTo(const std::string& directory) const;
};

// Syncing a file persists its bytes but not its name; syncing a directory persists its names. Each
// name created, moved or removed and each sector written since then may be on the disk or not,
// independently of all others; a rename is atomic.
class CrashDisk {
 public:
  explicit CrashDisk(uint64_t seed) : random_(seed) {}

  void Do(const DiskOperation& operation);

  // Calls `check` with possible states after a power loss. All combinations of up to three unsynced
  // names, each with: all, none, half-written, torn (sectors of 512 and 4096 bytes), and every
  // subset of up to three unsynced writes. For more of either: none, all, each alone, all but one,
  // each prefix, and random ones. `most` bounds the number of pairs.
  void ForEachState(size_t most, const std::function<void(const DiskState&)>& check);

 private:
  struct NameChange {
    std::string directory;
    std::string removes;
    std::string adds;
    int file = -1;  // -1: a directory
  };
  struct Write {
    int file;
    uint64_t offset;
    std::vector<uint8_t> bytes;
    bool truncates = false;  // to `offset`
  };
  // The sectors of each write that arrive, and their size.
  struct Arrival {
    uint64_t sector = 512;
    bool zeros = false;  // the file's size arrives without bytes
    std::function<bool(size_t write, uint64_t sector)> arrives;
  };

  std::vector<std::vector<bool>> Subsets(size_t count);
  std::vector<Arrival> Arrivals();
  DiskState StateOf(const std::vector<bool>& names, const Arrival& arrival) const;

  std::mt19937_64 random_;
  std::map<std::string, int> names_;  // on the disk
  std::vector<NameChange> changes_;   // possibly on the disk
  std::map<int, std::vector<uint8_t>> contents_;
  std::vector<Write> writes_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_FAULTS_SUPPORT_CRASH_DISK_H_
