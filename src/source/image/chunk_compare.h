// Compares one range of two images block by block.
#ifndef CBT_SOURCE_IMAGE_CHUNK_COMPARE_H_
#define CBT_SOURCE_IMAGE_CHUNK_COMPARE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cbt/source/image.h"
#include "cbt/units.h"

namespace cbt {

// Bytes read from each image at a time. Both buffers fit in a second-level cache, so that the
// comparison finds there what the system call has just copied.
inline constexpr size_t kPieceBytes = 256 * kKiB;

// The two sides of a comparison.
struct ImagePair {
  std::shared_ptr<const Image> base;  // null: all zeros
  std::shared_ptr<const Image> target;
  bool skip_holes = true;

  // The first offset >= `offset` at which either side may hold data; the target's size if none.
  absl::StatusOr<uint64_t> NextData(uint64_t offset) const;

  // OK while neither image has changed since it was opened (Image::CheckUnchanged).
  absl::Status CheckUnchanged() const;
};

// Sets bit k of `changed` if the blocks at begin + k * block_size differ. Words are resized to
// cover [begin, end); bits past it are 0. Reads only pieces in which either side has data. Once
// `cold` is set, asks the kernel to read ahead from `asked` on; sets it when a read waits for the
// storage. Null: never asks.
// Requires: begin and end (or the target's size, if it is the end) are multiples of `block_size`,
//           which divides kPieceBytes.
absl::Status CompareChunk(const ImagePair& pair, uint64_t begin, uint64_t end, size_t block_size,
                          uint64_t asked, std::atomic<bool>* cold, std::vector<uint64_t>& changed);

}  // namespace cbt

#endif  // CBT_SOURCE_IMAGE_CHUNK_COMPARE_H_
