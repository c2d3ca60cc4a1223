// Copies ranges of images into a file and keeps it sparse.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_RANGE_COPIER_H_
#define CBT_PROGRAMS_CBT_OUTPUT_RANGE_COPIER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cbt/source/image.h"

namespace cbt::cli {

// Writes to one descriptor, at the same offsets as in the images. Belongs to one thread at a time.
class RangeCopier {
 public:
  // `name` is used in errors.
  RangeCopier(int descriptor, std::string name);

  // Called with the end (bytes) of each copied piece.
  void set_on_copied(std::function<void(uint64_t)> hook) { on_copied_ = std::move(hook); }

  // Copies what may be data in [begin, end) of `image` (end <= image.size()) and does not touch the
  // rest of the range: for a file that holds nothing there yet.
  // Errors: ABORTED when the image has become shorter, UNAVAILABLE when reading or writing fails.
  absl::Status CopyData(const Image& image, uint64_t begin, uint64_t end);

  // Makes [begin, end) of the file equal to `image`: copies its data and punches its holes. Ranges
  // of one image must ascend between two calls of CopyData(). Errors: as above.
  absl::Status CopyExactly(const Image& image, uint64_t begin, uint64_t end);

 private:
  // The first data of `image` at or after `offset`, cut at `end`.
  absl::StatusOr<Image::Range> NextData(const Image& image, uint64_t offset, uint64_t end);
  absl::Status CopyBytes(const Image& image, uint64_t begin, uint64_t end);
  absl::Status CopyInKernel(const Image& image, uint64_t& begin, uint64_t end);
  absl::Status Clear(uint64_t begin, uint64_t end);
  absl::Status Write(uint64_t offset, const uint8_t* data, size_t size);

  const int descriptor_;
  const std::string name_;
  std::function<void(uint64_t)> on_copied_;
  std::vector<uint8_t> buffer_;  // for what the kernel can't copy or punch
  bool copies_in_kernel_ = true;
  bool punches_holes_ = true;
  // The last result of FindData() and its image: neighbouring ranges often lie in one.
  const Image* found_in_ = nullptr;
  uint64_t found_from_ = 0;
  Image::Range found_;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_RANGE_COPIER_H_
