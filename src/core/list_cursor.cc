#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/memory.h"

namespace cbt {
namespace {

// The index holds every kStretch-th offset. A search reads a few cache lines of the index, which
// stays in a cache, and then one stretch of the list.
constexpr size_t kStretch = 64;

class ExtentListCursor final : public ExtentCursor {
 public:
  ExtentListCursor(std::vector<Extent> extents, const VolumeGeometry& geometry)
      : ExtentCursor(geometry), extents_(std::move(extents)) {
    index_.reserve(extents_.size() / kStretch + 1);
    for (size_t i = 0; i < extents_.size(); i += kStretch) index_.push_back(extents_[i].offset);
  }

 private:
  absl::Status DoSeek(uint64_t offset) override {
    start_ = offset;
    next_ = 0;
    if (extents_.empty()) return absl::OkStatus();
    // The last extent that begins at or below the offset, or the next one if that ends at or below
    // it.
    const auto stretch = std::upper_bound(index_.begin() + 1, index_.end(), offset) - 1;
    const auto first = extents_.begin() + (stretch - index_.begin()) * std::ptrdiff_t{kStretch};
    const auto end =
        extents_.end() - first > std::ptrdiff_t{kStretch} ? first + kStretch : extents_.end();
    const auto after = std::upper_bound(
        first, end, offset,
        [](uint64_t position, const Extent& extent) { return position < extent.offset; });
    next_ = static_cast<size_t>(after - extents_.begin());
    if (next_ > 0 && extents_[next_ - 1].end() > offset) --next_;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const size_t count = std::min(extents_.size() - next_, batch.room());
    const Extent* const from = extents_.data() + next_;
    uint64_t* const offsets = batch.mutable_offsets();
    uint64_t* const lengths = batch.mutable_lengths();
    for (size_t i = 0; i < count; ++i) {
      offsets[i] = from[i].offset;
      lengths[i] = from[i].length;
    }
    batch.set_size(count);
    if (count > 0 && batch.front().offset < start_) {
      batch.mutable_lengths()[0] -= start_ - batch.front().offset;
      batch.mutable_offsets()[0] = start_;
    }
    next_ += count;
    return next_ == extents_.size() ? capacity() : batch.back().end();
  }

  const std::vector<Extent> extents_;
  std::vector<uint64_t> index_;
  size_t next_ = 0;
  uint64_t start_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentCursor(std::vector<Extent> extents,
                                                               const VolumeGeometry& geometry) {
  if (absl::Status status = CheckGeometry(geometry); !status.ok()) return status;
  const auto [capacity, granularity] = geometry;
  uint64_t end = 0;
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    const char* wrong = nullptr;
    // Check the length before calling end(), which could wrap.
    if (extent.length == 0) {
      wrong = "is empty";
    } else if (extent.offset > capacity || extent.length > capacity - extent.offset) {
      wrong = "reaches past the capacity";
    } else if (extent.offset < end) {
      wrong = "starts before the previous one ends";
    } else if (extent.offset % granularity != 0 ||
               (extent.end() % granularity != 0 && extent.end() != capacity)) {
      wrong = "is not aligned to the granularity";
    }
    if (wrong != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", i, " (offset ", extent.offset,
                                                     ", length ", extent.length, ") ", wrong));
    }
    end = extent.end();
  }
  return std::make_unique<ExtentListCursor>(std::move(extents), geometry);
}

}  // namespace cbt
