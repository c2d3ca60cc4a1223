#include "cbt/extent_cursor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt {
namespace {

class ExtentListCursor final : public ExtentCursor {
 public:
  ExtentListCursor(std::vector<Extent> extents, uint64_t capacity, uint64_t granularity) noexcept
      : ExtentCursor(capacity, granularity), extents_(std::move(extents)) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    start_ = offset;
    next_ = static_cast<size_t>(
        std::partition_point(extents_.begin(), extents_.end(),
                             [=](const Extent& extent) { return extent.end() <= offset; }) -
        extents_.begin());
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    while (!batch.full() && next_ < extents_.size()) {
      const Extent& extent = extents_[next_++];
      const uint64_t begin = std::max(extent.offset, start_);
      batch.push_back({begin, extent.end() - begin});
    }
    return next_ == extents_.size() ? capacity() : batch.back().end();
  }

  const std::vector<Extent> extents_;
  size_t next_ = 0;
  uint64_t start_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentCursor(std::vector<Extent> extents,
                                                               uint64_t capacity,
                                                               uint64_t granularity) {
  if (absl::Status status = CheckGeometry(capacity, granularity); !status.ok()) return status;
  uint64_t end = 0;
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    const char* wrong = nullptr;
    // The length is looked at before end(), which could wrap.
    if (extent.length == 0) {
      wrong = "is empty";
    } else if (extent.offset > capacity || extent.length > capacity - extent.offset) {
      wrong = "reaches past the capacity";
    } else if (extent.offset < end) {
      wrong = "starts before the end of the one before";
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
  return std::make_unique<ExtentListCursor>(std::move(extents), capacity, granularity);
}

}  // namespace cbt
