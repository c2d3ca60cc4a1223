// A disk that loses power: of what was done to its files, what was synced is there afterwards, and
// of the rest any part.
#ifndef CBT_TESTS_FAULTS_SUPPORT_CRASH_DISK_H_
#define CBT_TESTS_FAULTS_SUPPORT_CRASH_DISK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "faults/support/disk_recorder.h"

namespace cbt::test {

// Files and folders by path.
struct DiskState {
  std::set<std::string> folders;
  std::map<std::string, std::vector<uint8_t>> files;

  uint64_t Hash() const;
  // Makes `folder` hold this and nothing else.
  void WriteTo(const std::string& folder) const;
};

// Syncing a file brings its bytes to the disk and not its name; syncing a folder the names in it.
// Each name that was made, moved or removed since then, and each sector that was written since
// then, may be on the disk or not, independently of all others; a rename is there or not as a
// whole.
class CrashDisk {
 public:
  explicit CrashDisk(uint64_t seed) : random_(seed) {}

  void Do(const DiskOperation& operation);

  // Calls `check` with states that the disk may be in after a loss of power: every combination of
  // up to three unsynced names with all, no, half-written, torn (sectors of 512 and of 4096 bytes)
  // and each subset of up to three unsynced writes; of more of them none, all, each alone, all but
  // each, each beginning, and random ones. `most` bounds the number of pairs.
  void ForEachState(size_t most, const std::function<void(const DiskState&)>& check);

 private:
  struct NameChange {
    std::string folder;
    std::string removes;
    std::string adds;
    int file = -1;  // -1: a folder
  };
  struct Write {
    int file;
    uint64_t offset;
    std::vector<uint8_t> bytes;
    bool truncates = false;  // to `offset`
  };
  // For each write, which sectors of which size arrive.
  struct Arrival {
    uint64_t sector = 512;
    bool zeros = false;  // the size does, and no bytes
    std::function<bool(size_t write, uint64_t sector)> arrives;
  };

  std::vector<std::vector<bool>> Subsets(size_t count);
  std::vector<Arrival> Arrivals();
  DiskState StateOf(const std::vector<bool>& names, const Arrival& arrival) const;

  std::mt19937_64 random_;
  std::map<std::string, int> names_;  // that are on the disk
  std::vector<NameChange> changes_;   // that may be
  std::map<int, std::vector<uint8_t>> contents_;
  std::vector<Write> writes_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_FAULTS_SUPPORT_CRASH_DISK_H_
