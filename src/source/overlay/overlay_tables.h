// The bytes of an overlay besides its data: the header and the tables.
#ifndef CBT_SOURCE_OVERLAY_OVERLAY_TABLES_H_
#define CBT_SOURCE_OVERLAY_OVERLAY_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "source/overlay/overlay_plan.h"
#include "source/overlay/overlay_writer.h"

namespace cbt {

// Where data lies if that was not known from the plan.
struct OverlayPlaces {
  // The entry of each cluster of data in the order of the plan, as second-level tables have it.
  std::vector<uint64_t> entries = {};
  // References to each cluster of the file from OverlayShape::data_begin() on.
  std::vector<uint16_t> counts = {};
};

// Entries of a second-level table.
uint64_t PlainEntry(uint64_t offset) noexcept;
inline constexpr uint64_t kOverlayZeroEntry = 1;
// A compressed cluster of `size` bytes, > 0, at `offset`, which begins a sector.
uint64_t CompressedEntry(unsigned cluster_bits, uint64_t offset, uint64_t size) noexcept;

// The first cluster, without what is zero at its end.
// Errors: INVALID_ARGUMENT for names that don't fit.
absl::StatusOr<std::vector<uint8_t>> OverlayHeader(const OverlayShape& shape,
                                                   const OverlayTables& tables,
                                                   const OverlayOptions& options);

// Appends all tables. `places` is null if clusters of data lie one after another from
// data_begin() on.
absl::Status AppendOverlayTables(const OverlayPlan& plan, const OverlayTables& tables,
                                 const OverlayPlaces* places, OverlayOutput& output);

}  // namespace cbt

#endif  // CBT_SOURCE_OVERLAY_OVERLAY_TABLES_H_
