// Walks the two-level cluster tables of one file of a chain, a slice of a table at a time.
#ifndef CBT_SOURCE_QCOW2_QCOW2_TABLES_H_
#define CBT_SOURCE_QCOW2_QCOW2_TABLES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/units.h"
#include "source/qcow2/qcow2_format.h"

namespace cbt {

// Where bytes of a volume lie, as far as one file knows.
enum class Placement : uint8_t {
  kAbsent,      // not in this file: in the one below, or zeros
  kZero,        // marked as zeros, or in a hole of a raw file
  kData,        // at `host`
  kCompressed,  // in the compressed cluster with the descriptor `host`
};

// A range with one placement, from the requested offset to `end`.
struct Segment {
  Placement placement = Placement::kAbsent;
  uint64_t end = 0;   // > the requested offset
  uint64_t host = 0;  // kData: where the byte at that offset lies, if segments are contiguous
};

// How far a segment may reach.
enum class SegmentRule : uint8_t {
  kKind,        // as long as the placement is the same; compressed clusters count as data
  kContiguous,  // also only as long as host offsets are contiguous
};

// The units (clusters or subclusters) of a slice: a bit for each, set for those that count.
struct UnitBits {
  uint64_t first_unit = 0;          // a multiple of 64; the bits begin with it
  const uint64_t* words = nullptr;  // null: none counts
  uint64_t end = 0;                 // bytes: where they end
};

// Which units count as set in UnitBits.
enum class CountedUnits : uint8_t {
  kNone,     // no bits are made
  kData,     // data, compressed or not
  kPresent,  // data and zeros
};

// A position in one file. Keeps at most kMaxSliceBytes of a second-level table, twice, and
// kWindowBytes of the first-level table in memory. Belongs to one thread.
class TableWalk {
 public:
  static constexpr uint64_t kMaxSliceBytes = 64 * kKiB;
  static constexpr uint64_t kWindowBytes = 4096;

  // `layer` must outlive the walk. `tables` must have passed CheckQcow2Tables(); for a raw file
  // only its size counts.
  TableWalk(const Qcow2Layer& layer, const Qcow2Tables& tables, SegmentRule rule,
            CountedUnits counted = CountedUnits::kNone);

  // The placement at `offset` (bytes, < size()). Segments end at table slices at the latest, so
  // neighbours may have the same placement.
  // Errors: DATA_LOSS for entries that contradict the format, ABORTED, UNAVAILABLE.
  absl::Status Find(uint64_t offset, Segment& segment);

  // The units of the slice at `offset` (bytes, < size()), valid until the next call. Those past the
  // volume's end are clear. Requires: a qcow2 file, units that count.
  // Errors: as Find().
  absl::Status FindUnits(uint64_t offset, UnitBits& units);

  // For two states of one file: for how many bytes from `offset` both walks have the same tables,
  // or else the same entries. If 0, they may still lie in the same place, see Find().
  // Requires: both walks are over the same qcow2 file, `offset` < size() of both.
  // Errors: as Find().
  absl::StatusOr<uint64_t> EqualUpTo(TableWalk& other, uint64_t offset);

  uint64_t size() const noexcept { return tables_.size; }

  // Grows with the work done, so that calls can be bounded: about one per nanosecond.
  uint64_t work() const noexcept { return work_; }

 private:
  absl::Status FindRaw(uint64_t offset, Segment& segment);
  // The placement in the slice at `offset`, which must lie in it.
  void Scan(uint64_t offset, Segment& segment) noexcept;
  // The entry of the first-level table for `offset`: the offset of a table, or 0.
  absl::StatusOr<uint64_t> FirstLevel(uint64_t offset);
  // Loads the slice with the entry for `offset` of the table at `table`.
  absl::Status LoadSlice(uint64_t table, uint64_t offset);
  absl::Status Decode(uint64_t position);
  bool DecodeStandard() noexcept;
  absl::Status DecodeEach(uint64_t position);
  void CountUnits() noexcept;
  // Where the tables that are absent from `offset` on end.
  uint64_t AbsentUntil(uint64_t offset) const noexcept;
  absl::Status BrokenEntry(uint64_t position, size_t index) const;
  size_t ScanStandard(size_t index, Segment& segment) const noexcept;
  size_t ScanExtended(size_t unit, Segment& segment) const noexcept;
  size_t IndexOf(uint64_t offset) const noexcept;
  uint64_t SliceBegin(uint64_t offset) const noexcept;

  const Image& file_;
  const Qcow2Layer& layer_;
  const Qcow2Header& header_;
  const Qcow2Tables tables_;
  const SegmentRule rule_;
  const CountedUnits counted_;
  const uint64_t slice_entries_;

  // Part of the first-level table: offsets of tables.
  std::vector<uint64_t> window_;
  uint64_t window_begin_ = 0;

  // Part of a second-level table, decoded: without the flag for single references, and with every
  // all-zero entry as kZeroEntry. With subclusters, two words per entry.
  std::vector<uint64_t> slice_;
  uint64_t slice_table_ = 0;       // 0: none
  uint64_t slice_first_ = 0;       // number of its first entry in the table
  uint64_t slice_begin_ = 0;       // the volume offset of this entry
  std::vector<uint64_t> decoded_;  // room for the next one
  std::vector<uint64_t> bits_;     // of the slice, see UnitBits

  Image::Range data_;  // of a raw file: the data range last found
  bool data_known_ = false;
  uint64_t data_from_ = 0;  // where the search began: a hole up to data_.begin

  uint64_t work_ = 0;
};

}  // namespace cbt

#endif  // CBT_SOURCE_QCOW2_QCOW2_TABLES_H_
