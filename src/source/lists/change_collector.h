// Builds a change map from the ranges that a storage system lists.
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
#include "cbt/source/lists.h"

namespace cbt {

// Takes ranges in any order, of a volume whose size may come last.
class ChangeCollector {
 public:
  // Errors: INVALID_ARGUMENT for the granularity (bytes).
  static absl::StatusOr<ChangeCollector> Create(uint64_t granularity);

  // Adds the bytes [offset, offset + length); an empty range adds nothing.
  // Errors: OUT_OF_RANGE if it ends past kMaxCapacity, RESOURCE_EXHAUSTED if the map gets too
  //         large.
  absl::Status Add(uint64_t offset, uint64_t length) {
    if (offset > kMaxCapacity || length > kMaxCapacity - offset) return TooFar(offset, length);
    if (length == 0) return absl::OkStatus();
    if (count_ > 0 && waiting_[count_ - 1].end() == offset) {  // continues the last one
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
    // A product that overflows is past every volume.
    if (begin > kMaxCapacity / unit || count > kMaxCapacity / unit - begin) {
      return TooFarInUnits(begin, count, unit);
    }
    return Add(begin * unit, count * unit);
  }

  // Adds the changes in `map`.
  absl::Status Add(const ChangeMap& map);

  // The map of a volume of `capacity` bytes. Ranges may reach up to `limit` bytes, rounded up to
  // the source's unit; they are cut at the capacity.
  // Errors: OUT_OF_RANGE for a range that ends past the limit.
  absl::StatusOr<ChangeMap> Finish(uint64_t capacity, uint64_t limit, uint64_t unit);

  // As above with the sizes in `options`, whose capacity must be set.
  absl::StatusOr<ChangeMap> Finish(const ImportOptions& options, uint64_t unit);

 private:
  explicit ChangeCollector(ChangeMapBuilder builder) : builder_(std::move(builder)) {}
  static absl::Status TooFar(uint64_t offset, uint64_t length);
  static absl::Status TooFarInUnits(uint64_t begin, uint64_t count, uint64_t unit);
  absl::Status Flush();

  ChangeMapBuilder builder_;
  std::array<Extent, 256> waiting_ = {};
  size_t count_ = 0;       // of waiting ranges
  uint64_t last_end_ = 0;  // of all ranges before those
};

// `status` prefixed with the label and `where`.
absl::Status At(std::string_view label, std::string_view where, const absl::Status& status);

// INVALID_ARGUMENT if the options ask for another purpose than `only`.
absl::Status CheckPurpose(std::string_view label, const ImportOptions& options, SourcePurpose only,
                          std::string_view what);

// The given capacity; INVALID_ARGUMENT if missing.
absl::StatusOr<uint64_t> NeededCapacity(std::string_view label, const ImportOptions& options,
                                        std::string_view format);

}  // namespace cbt

#endif  // CBT_SOURCE_LISTS_CHANGE_COLLECTOR_H_
