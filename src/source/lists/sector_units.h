// The units of device-mapper metadata.
#ifndef CBT_SOURCE_LISTS_SECTOR_UNITS_H_
#define CBT_SOURCE_LISTS_SECTOR_UNITS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/extent.h"
#include "source/lists/xml_records.h"

namespace cbt {

inline constexpr uint64_t kDmSectorBytes = 512;

// Reads attribute `name`, a number of sectors above 0, in bytes.
// Errors: DATA_LOSS.
inline absl::Status SectorUnit(const XmlAttributes& attributes, std::string_view name,
                               uint64_t& bytes) {
  const absl::StatusOr<uint64_t> sectors = attributes.Number(name);
  if (!sectors.ok()) return sectors.status();
  if (*sectors == 0 || *sectors > kMaxGranularity / kDmSectorBytes) {
    return absl::DataLossError("an invalid block size");
  }
  bytes = *sectors * kDmSectorBytes;
  return absl::OkStatus();
}

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_SECTOR_UNITS_H_
