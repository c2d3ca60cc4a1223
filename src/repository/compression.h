// zstd, within bounds.
#ifndef CBT_REPOSITORY_COMPRESSION_H_
#define CBT_REPOSITORY_COMPRESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace cbt::repository {

// One frame. `level`: zstd's, 1 to 19.
absl::StatusOr<std::vector<uint8_t>> Compress(std::span<const uint8_t> plain, int level);
// The same in the memory of `buffer`, which only grows: it is meant for the next frame as well.
absl::StatusOr<std::span<const uint8_t>> CompressInto(std::span<const uint8_t> plain, int level,
                                                      std::vector<uint8_t>& buffer);

// The content of one frame, which must have exactly `size` bytes. Errors: DATA_LOSS.
absl::StatusOr<std::vector<uint8_t>> DecompressExactly(std::span<const uint8_t> frame, size_t size);
absl::StatusOr<std::span<const uint8_t>> DecompressInto(std::span<const uint8_t> frame, size_t size,
                                                        std::vector<uint8_t>& buffer);

// The content of frames that don't say how much it is.
// Errors: DATA_LOSS; RESOURCE_EXHAUSTED past `max` bytes, before more is allocated.
absl::StatusOr<std::vector<uint8_t>> DecompressUpTo(std::span<const uint8_t> frames, size_t max);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_COMPRESSION_H_
