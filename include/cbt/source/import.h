// What every importer of a storage system's own change metadata is told. Part of cbt::source.
//
// An importer reads a list of ranges once, from a stream, and makes a change map of it: sorted,
// merged, rounded outward to the map's granularity, cut at the volume's end. The input never lies
// in memory, whatever its size; the map does, compressed (2 to 4 bytes a range in most cases).
//
// Common to all of them: ranges may come in any order and overlap. A range that wraps or reaches
// past the volume, an input that ends early, a syntax error, a number that is none: DATA_LOSS that
// names the position in the input and the reason, and no map. Zeroed, discarded and vanished ranges
// of a delta are changes.
#ifndef CBT_SOURCE_IMPORT_H_
#define CBT_SOURCE_IMPORT_H_

#include <cstdint>
#include <optional>

namespace cbt {

// What a source is asked about.
enum class SourcePurpose {
  kAllocated,  // what may hold data in a snapshot
  kDelta,      // what may differ from one snapshot to another
};

struct ImportOptions {
  // What the input is taken for. One that says itself that it is the other is INVALID_ARGUMENT, and
  // so is one that could be either where nothing is given here.
  std::optional<SourcePurpose> purpose = {};

  // Size of the target in bytes. Formats that don't say it need it; for others it must be what they
  // say, up to the rounding of their units.
  std::optional<uint64_t> capacity = {};

  // Size of the base in bytes where it was larger: how far the ranges of a delta may reach. What
  // lies past the target's end is not reported.
  std::optional<uint64_t> base_capacity = {};

  // Granularity of the map in bytes.
  uint64_t granularity = 4096;
};

}  // namespace cbt

#endif  // CBT_SOURCE_IMPORT_H_
