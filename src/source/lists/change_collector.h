// From ranges as storage systems list them to a change map.
#ifndef CBT_SOURCE_LISTS_CHANGE_COLLECTOR_H_
#define CBT_SOURCE_LISTS_CHANGE_COLLECTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/extent.h"
#include "cbt/source/import.h"

namespace cbt {

// Takes ranges in any order, of a volume whose end may be known last.
class ChangeCollector {
 public:
  // Errors: INVALID_ARGUMENT for the granularity (bytes).
  static absl::StatusOr<ChangeCollector> Create(uint64_t granularity);

  // Adds the bytes [offset, offset + length); an empty range adds nothing.
  // Errors: OUT_OF_RANGE when it ends past kMaxCapacity, RESOURCE_EXHAUSTED when the map gets too
  //         large.
  absl::Status Add(uint64_t offset, uint64_t length) {
    if (offset > kMaxCapacity || length > kMaxCapacity - offset) return TooFar(offset, length);
    if (length == 0) return absl::OkStatus();
    if (count_ > 0 && waiting_[count_ - 1].end() == offset) {  // goes on where the last one ended
      waiting_[count_ - 1].length += length;
      return absl::OkStatus();
    }
    absl::Status status;
    if (count_ == waiting_.size()) status = Flush();
    waiting_[count_++] = {offset, length};
    return status;
  }

  // As above in units of `unit` bytes (> 0).
  absl::Status AddUnits(uint64_t begin, uint64_t count, uint64_t unit) {
    // A product that does not fit is past every volume.
    if (begin > kMaxCapacity / unit || count > kMaxCapacity / unit - begin) {
      return TooFarInUnits(begin, count, unit);
    }
    return Add(begin * unit, count * unit);
  }

  // Adds what `map` holds.
  absl::Status Add(const ChangeMap& map);

  // The map of a volume of `capacity` bytes. Ranges may reach up to `limit` bytes, rounded up to
  // the source's unit; they are cut at the capacity.
  // Errors: OUT_OF_RANGE for a range that ends past the limit.
  absl::StatusOr<ChangeMap> Finish(uint64_t capacity, uint64_t limit, uint64_t unit);

  // As above for what an importer was told: the capacity of `options`, which is there.
  absl::StatusOr<ChangeMap> Finish(const ImportOptions& options, uint64_t unit);

 private:
  explicit ChangeCollector(ChangeMapBuilder builder) : builder_(std::move(builder)) {}
  static absl::Status TooFar(uint64_t offset, uint64_t length);
  static absl::Status TooFarInUnits(uint64_t begin, uint64_t count, uint64_t unit);
  absl::Status Flush();

  ChangeMapBuilder builder_;
  std::array<Extent, 256> waiting_ = {};
  size_t count_ = 0;       // of those that wait
  uint64_t last_end_ = 0;  // of everything that doesn't any more
};

// `status` with the place in front: the label, and what `where` says.
absl::Status At(std::string_view label, std::string_view where, const absl::Status& status);

// INVALID_ARGUMENT when a source that is only good for the other purpose was asked.
absl::Status CheckPurpose(std::string_view label, const ImportOptions& options, SourcePurpose only,
                          std::string_view what);

// The capacity that was given; INVALID_ARGUMENT when none was.
absl::StatusOr<uint64_t> NeededCapacity(std::string_view label, const ImportOptions& options,
                                        std::string_view format);

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_CHANGE_COLLECTOR_H_
