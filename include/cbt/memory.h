// Memory as a change source: the blocks in which two ranges differ, and those of one that hold
// anything but zeros. For volumes that are mapped or held in memory; images on disk are better read
// through cbt/source/image.h, which skips holes and survives a file that gets shorter.
#ifndef CBT_MEMORY_H_
#define CBT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/executor.h"

namespace cbt {

struct MemoryOptions {
  // Granularity of the answer in bytes: any number from 512 to 64 MiB.
  uint64_t block_size = 4096;

  // Several threads for one cursor: see BitmapOptions.
  Executor* executor = nullptr;
  size_t parallel = 1;
};

inline constexpr uint64_t kMinMemoryBlockSize = 512;
inline constexpr uint64_t kMaxMemoryBlockSize = uint64_t{64} << 20;

// The blocks in which `target` differs from `base`, as maximal extents; the last one is cut at the
// end. The memory belongs to the caller, must outlive the cursor and must not change meanwhile; it
// needs no alignment.
// Errors: INVALID_ARGUMENT for ranges of different size and for options out of range. The cursor
//         itself never fails.
// Cost:   Seek() O(1); Next() reads what it moves past, of a block that differs only up to the
//         first difference or so.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeMemoryDeltaCursor(
    std::span<const uint8_t> base, std::span<const uint8_t> target,
    const MemoryOptions& options = {});

// The blocks of `memory` that hold a byte other than zero. As above.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeMemoryAllocationCursor(
    std::span<const uint8_t> memory, const MemoryOptions& options = {});

}  // namespace cbt

#endif  // CBT_MEMORY_H_
