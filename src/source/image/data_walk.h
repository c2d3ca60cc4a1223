// Where one image may hold data, for a reader that moves forward.
#ifndef CBT_SOURCE_IMAGE_DATA_WALK_H_
#define CBT_SOURCE_IMAGE_DATA_WALK_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/source/image.h"

namespace cbt {

// The data range of one side at or after a moving position. Asks the file system only if the
// position has left the known range.
class DataWalk {
 public:
  DataWalk(const Image* image, bool skip_holes) : image_(image), skip_holes_(skip_holes) {}

  absl::Status MoveTo(uint64_t offset) {
    if (known_ && offset < range_.end) {
      range_.begin = std::max(range_.begin, offset);
      return absl::OkStatus();
    }
    known_ = true;
    if (image_ == nullptr || offset >= image_->size()) {
      range_ = {UINT64_MAX, UINT64_MAX};
      return absl::OkStatus();
    }
    if (!skip_holes_) {
      range_ = {offset, image_->size()};
      return absl::OkStatus();
    }
    absl::StatusOr<Image::Range> range = image_->FindData(offset);
    if (!range.ok()) return range.status();
    range_ = *range;
    if (range_.begin >= image_->size()) range_ = {UINT64_MAX, UINT64_MAX};
    return absl::OkStatus();
  }

  uint64_t begin() const noexcept { return range_.begin; }
  uint64_t end() const noexcept { return range_.end; }

 private:
  const Image* const image_;
  const bool skip_holes_;
  bool known_ = false;
  Image::Range range_;
};

}  // namespace cbt

#endif  // CBT_SOURCE_IMAGE_DATA_WALK_H_
