// Which regions of a volume may have been written to: a log that is on disk before the write is
// issued.
#ifndef CBT_MAP_TRACKER_REGION_LOG_H_
#define CBT_MAP_TRACKER_REGION_LOG_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/directory.h"
#include "base/manifest_bytes.h"
#include "cbt/change_map.h"

namespace cbt {

// The most regions that a volume may have; a log takes 16 bytes for each.
inline constexpr uint64_t kMaxRegions = uint64_t{1} << 24;

// The header of a log.
struct RegionLogHeader {
  uint64_t tracker = 0;  // the tracker's id
  VolumeGeometry geometry;
  uint64_t region_bytes = 0;
  uint64_t epoch = 0;
  uint64_t number = 0;  // of the file, never reused
  std::string volume;
  std::string base;

  uint64_t regions() const noexcept { return BlockCount(geometry.capacity, region_bytes); }
};

// A file with a place for every region, each under a checksum even while it is empty, so that any
// lost part is detected. Regions are added one after the other, each once.
class RegionLog {
 public:
  // Creates `file` in `directory` and syncs it to disk. Errors: file errors.
  // Requires: header.regions() <= kMaxRegions.
  static absl::StatusOr<std::shared_ptr<RegionLog>> Create(const Directory& directory,
                                                           const std::string& file,
                                                           const RegionLogHeader& header);

  // The contents of a log.
  struct Contents {
    RegionLogHeader header;
    uint64_t checksum = 0;  // of the header
    // False if the records can't be trusted: then every region counts.
    bool sound = true;
    std::vector<uint64_t> regions;
  };
  // Errors: file errors; DATA_LOSS if the header is damaged, UNIMPLEMENTED for another version.
  static absl::StatusOr<Contents> Read(const Directory& directory, const std::string& file);

  // The manifest's entry for this file.
  ManifestFile file() const noexcept { return {number_, seed_}; }

  // True if the region is on disk. Any thread.
  bool Has(uint64_t region) const noexcept {
    return logged_[region].load(std::memory_order_acquire) != 0;
  }

  // Returns once the regions [first, last] are on disk; concurrent threads share one write and one
  // sync. After an error, including RESOURCE_EXHAUSTED for memory, every call fails.
  // Errors: file errors; DATA_LOSS if the file was removed or replaced meanwhile.
  absl::Status Add(uint64_t first, uint64_t last);

 private:
  RegionLog(const Directory& directory, std::string name, OwnedDescriptor file, uint64_t number,
            uint64_t seed, uint64_t regions);
  absl::Status CheckName() const;
  bool HasAll(uint64_t first, uint64_t last) const noexcept;
  absl::Status Write(const std::vector<uint64_t>& regions);

  const Directory directory_;
  const std::string name_;
  const OwnedDescriptor file_;
  const std::string shown_;  // the path, for messages
  const uint64_t number_;
  const uint64_t seed_;           // the header's checksum
  const absl::Status no_memory_;  // created while memory was available
  std::vector<std::atomic<uint8_t>> logged_;

  std::mutex mutex_;
  std::condition_variable written_;
  bool writing_ = false;
  std::vector<uint64_t> waiting_;
  uint64_t records_ = 0;
  absl::Status failure_;
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_REGION_LOG_H_
