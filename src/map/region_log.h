// Which regions of a volume may have been written to: a log on disk that is there before the write.
#ifndef CBT_MAP_REGION_LOG_H_
#define CBT_MAP_REGION_LOG_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "map/descriptor.h"

namespace cbt {

// What a log is about.
struct RegionLogHeader {
  VolumeGeometry geometry;
  uint64_t region_bytes = 0;
  uint64_t epoch = 0;
  uint64_t generation = 0;
  std::string volume;
  std::string base;

  uint64_t regions() const noexcept { return BlockCount(geometry.capacity, region_bytes); }
};

// A file that has a place for every region from the beginning on, so that what has been lost of it
// shows. Regions come into it one after the other, each once.
class RegionLog {
 public:
  // Makes the file at `path` and brings it to the disk. Errors: those of files.
  static absl::StatusOr<std::shared_ptr<RegionLog>> Create(const std::string& path,
                                                           const RegionLogHeader& header);

  // What was read from a log.
  struct Contents {
    RegionLogHeader header;
    // False when the records can't be trusted: every region counts then.
    bool sound = true;
    std::vector<uint64_t> regions;
  };
  // Errors: those of files; DATA_LOSS when the header is damaged, UNIMPLEMENTED for a newer
  // version.
  static absl::StatusOr<Contents> Read(const std::string& path);

  // True when the region is on the disk. Any thread.
  bool Has(uint64_t region) const noexcept {
    return logged_[region].load(std::memory_order_acquire) != 0;
  }

  // Returns when the regions [first, last] are on the disk; threads that come together share one
  // write and one sync. After an error, RESOURCE_EXHAUSTED for memory among them, every call fails.
  absl::Status Add(uint64_t first, uint64_t last);

 private:
  RegionLog(OwnedDescriptor file, std::string path, uint64_t seed, uint64_t regions);
  bool HasAll(uint64_t first, uint64_t last) const noexcept;
  absl::Status Write(const std::vector<uint64_t>& regions);

  const OwnedDescriptor file_;
  const std::string path_;
  const uint64_t seed_;           // the header's checksum
  const absl::Status no_memory_;  // made while there was some
  std::vector<std::atomic<uint8_t>> logged_;

  std::mutex mutex_;
  std::condition_variable written_;
  bool writing_ = false;
  std::vector<uint64_t> waiting_;
  uint64_t records_ = 0;
  absl::Status failure_;
};

}  // namespace cbt

#endif  // CBT_MAP_REGION_LOG_H_
