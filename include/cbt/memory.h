// Memory as a change source: the blocks in which two ranges differ, and the blocks of one range
// that are not all zero, for volumes that are mapped or held in memory; and lists of extents. Read
// images on disk through cbt/source/image.h instead: it skips holes and survives truncation.
#ifndef CBT_MEMORY_H_
#define CBT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/executor.h"
#include "cbt/lifetime.h"
#include "cbt/units.h"

namespace cbt {

struct MemoryOptions {
  // Granularity of the answer in bytes, from 512 to 64 MiB; need not be a power of two.
  uint64_t block_size = 4096;

  // Several threads for one cursor: see BitmapOptions.
  Executor* executor = nullptr;
  size_t parallel = 1;
};

inline constexpr uint64_t kMinMemoryBlockSize = 512;
inline constexpr uint64_t kMaxMemoryBlockSize = 64 * kMiB;

// The blocks in which `target` differs from `base`, as maximal extents; the last one is cut at the
// end. The cursor keeps both: vectors that are moved in, or a mapping with its owner. They must not
// change while they are read, and need no alignment.
// Errors: INVALID_ARGUMENT for ranges of different sizes and for options out of range. The cursor
//         itself never fails.
// Cost:   Seek() is O(1); Next() reads what it covers, and stops reading a block soon after its
//         first difference.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeMemoryDeltaCursor(
    SharedBytes base, SharedBytes target, const MemoryOptions& options = {});

// The blocks of `memory` that hold a nonzero byte; otherwise as above.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeMemoryAllocationCursor(
    SharedBytes memory, const MemoryOptions& options = {});

// The same over memory that the caller keeps, unchanged, until the cursor is gone.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedMemoryDeltaCursor(
    std::span<const uint8_t> base, std::span<const uint8_t> target,
    const MemoryOptions& options = {});
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedMemoryAllocationCursor(
    std::span<const uint8_t> memory, const MemoryOptions& options = {});

// Temporaries would dangle: give them to the functions that keep them.
template <typename Base, typename Target>
requires(TemporaryBytes<Base> || TemporaryBytes<Target>)
    absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedMemoryDeltaCursor(
        Base&& base, Target&& target, const MemoryOptions& options = {})
= delete;
template <TemporaryBytes Memory>
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedMemoryAllocationCursor(
    Memory&& memory, const MemoryOptions& options = {}) = delete;

// --- Extents that are already in memory.

// A cursor over `extents`, which it keeps: move the vector in, or it is copied. For lists returned
// by a management API.
//
//   auto cursor = cbt::MakeExtentCursor(std::move(extents), {.capacity = 64 * cbt::kGiB,
//                                                            .granularity = 4 * cbt::kKiB});
//
// Requires: extents ascend, don't overlap (they may touch), have length > 0 and end at or below the
//           capacity; each starts and ends at a multiple of the granularity or at the capacity.
// Errors:   INVALID_ARGUMENT, naming the first invalid extent.
// Cost:     O(n) to check; Seek() is O(log n), a few hundred nanoseconds in a list of millions.
//           Memory: the vector, and 1/128 of it.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentCursor(std::vector<Extent> extents,
                                                               const VolumeGeometry& geometry);

}  // namespace cbt

#endif  // CBT_MEMORY_H_
