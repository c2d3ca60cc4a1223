#include "cbt/list_cursor.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace cbt {
namespace {

// The index holds every kStretch-th offset. A search reads a few cache lines of the index, which
// stays in a cache, and then one stretch of the list.
constexpr size_t kStretch = 64;

class ExtentListCursor final : public ExtentCursor {
 public:
  ExtentListCursor(const std::vector<Extent>& extents, uint64_t capacity, uint64_t granularity)
      : ExtentCursor(capacity, granularity) {
    offsets_.reserve(extents.size());
    lengths_.reserve(extents.size());
    index_.reserve(extents.size() / kStretch + 1);
    for (const Extent& extent : extents) {
      if (offsets_.size() % kStretch == 0) index_.push_back(extent.offset);
      offsets_.push_back(extent.offset);
      lengths_.push_back(extent.length);
    }
  }

 private:
  absl::Status DoSeek(uint64_t offset) override {
    start_ = offset;
    next_ = 0;
    if (offsets_.empty()) return absl::OkStatus();
    // The last extent that begins at or below the offset, or the next one if that ends at or below
    // it.
    const auto stretch = std::upper_bound(index_.begin() + 1, index_.end(), offset) - 1;
    const auto first = offsets_.begin() + (stretch - index_.begin()) * std::ptrdiff_t{kStretch};
    const auto end =
        offsets_.end() - first > std::ptrdiff_t{kStretch} ? first + kStretch : offsets_.end();
    const auto after = std::upper_bound(first, end, offset);
    next_ = static_cast<size_t>(after - offsets_.begin());
    if (next_ > 0 && offsets_[next_ - 1] + lengths_[next_ - 1] > offset) --next_;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const size_t count = std::min(offsets_.size() - next_, batch.room());
    std::copy_n(offsets_.data() + next_, count, batch.mutable_offsets());
    std::copy_n(lengths_.data() + next_, count, batch.mutable_lengths());
    batch.set_size(count);
    if (count > 0 && batch.front().offset < start_) {
      batch.mutable_lengths()[0] -= start_ - batch.front().offset;
      batch.mutable_offsets()[0] = start_;
    }
    next_ += count;
    return next_ == offsets_.size() ? capacity() : batch.back().end();
  }

  std::vector<uint64_t> offsets_;
  std::vector<uint64_t> lengths_;
  std::vector<uint64_t> index_;
  size_t next_ = 0;
  uint64_t start_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentCursor(const std::vector<Extent>& extents,
                                                               uint64_t capacity,
                                                               uint64_t granularity) {
  if (absl::Status status = CheckGeometry(capacity, granularity); !status.ok()) return status;
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
  return std::make_unique<ExtentListCursor>(extents, capacity, granularity);
}

}  // namespace cbt
