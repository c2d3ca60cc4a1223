// Options and rules that all importers of change metadata share. Part of cbt::source.
//
// An importer reads a list of ranges once, from a stream, and builds a change map: sorted, merged,
// rounded outward to the map's granularity, cut at the volume's end. The input is never held in
// memory, whatever its size; the map is, compressed (2 to 4 bytes per range in most cases).
//
// Ranges may come in any order and overlap. A range that wraps or reaches past the volume, an input
// that ends early, a syntax error, an invalid number: DATA_LOSS naming the position in the input
// and the reason, and no map. Zeroed, discarded and vanished ranges of a delta are changes.
#ifndef CBT_SOURCE_IMPORT_H_
#define CBT_SOURCE_IMPORT_H_

#include <cstdint>
#include <optional>

#include "cbt/version.h"

namespace cbt {

// What a source reports.
enum class SourcePurpose {
  kAllocated,  // what may hold data in a snapshot
  kDelta,      // what may differ from one snapshot to another
};

struct ImportOptions {
  // How to interpret the input. INVALID_ARGUMENT if the input itself says otherwise, or if it could
  // be either and this is empty.
  std::optional<SourcePurpose> purpose = {};

  // Size of the target in bytes. Required for formats that don't hold it; otherwise it must match
  // what they say, up to the rounding of their units.
  std::optional<uint64_t> capacity = {};

  // Size of the base in bytes if it was larger: how far the ranges of a delta may reach. Nothing
  // past the target's end is reported.
  std::optional<uint64_t> base_capacity = {};

  // Granularity of the map in bytes.
  uint64_t granularity = 4096;
};

}  // namespace cbt

#endif  // CBT_SOURCE_IMPORT_H_
