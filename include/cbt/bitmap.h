// Dense bitmaps in memory, and cursors over the runs of set bits in one or in the combination of
// two of them.
//
// Bit b of a bitmap is bit (b % 8) of byte (b / 8), least significant first. Bit k of a volume's
// bitmap stands for the bytes [k * granularity, (k + 1) * granularity).
#ifndef CBT_BITMAP_H_
#define CBT_BITMAP_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

// A view of `bit_count()` bits that somebody else owns; it must not outlive them, and they must not
// change while a cursor reads them. The bytes need no alignment.
class BitmapView {
 public:
  // The empty bitmap.
  BitmapView() = default;

  // The bits [first_bit, first_bit + bit_count) of `bytes`.
  // Errors: INVALID_ARGUMENT when `bytes` is too short to hold them.
  static absl::StatusOr<BitmapView> Create(std::span<const uint8_t> bytes, uint64_t first_bit,
                                           uint64_t bit_count);

  uint64_t bit_count() const noexcept { return bit_count_; }

  // Copies the 64-bit words that hold bits [position, position + 64 * words) of the view to `out`;
  // bits past the end of the view are 0. `position` <= bit_count(). O(words).
  void CopyWords(uint64_t position, uint64_t* out, size_t words) const noexcept;

  // The address of bit `position` when it starts a byte and at least 64 * words bits follow, so
  // that they can be read in place with unaligned loads; else nullptr.
  const uint8_t* InPlace(uint64_t position, uint64_t words) const noexcept;

 private:
  BitmapView(const uint8_t* bytes, uint64_t first_bit, uint64_t bit_count) noexcept
      : bytes_(bytes), first_bit_(first_bit), bit_count_(bit_count) {}

  const uint8_t* bytes_ = nullptr;
  uint64_t first_bit_ = 0;
  uint64_t bit_count_ = 0;
};

// How two bitmaps combine into the one whose runs are reported.
enum class BitmapOp {
  kXor,     // set in one of them only: blocks whose state differs
  kAndNot,  // set in the second and not in the first: newly set
  kOr,      // set in either
  kAnd,     // set in both
};

// The runs of set bits in `bitmap` as extents of a volume of `capacity` bytes. Extents are maximal;
// the last one is cut at the capacity.
// Requires: bitmap.bit_count() == BlockCount(capacity, granularity); a shorter bitmap would hide
//           changes and is refused.
// Errors:   INVALID_ARGUMENT. The cursor itself never fails.
// Cost:     Seek() O(1); Next() one pass over the bits it moves past.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const BitmapView& bitmap,
                                                               uint64_t capacity,
                                                               uint64_t granularity);

// As above for the runs of `op` applied to `base` and `target` (in this order), without building
// the combined bitmap. Both have BlockCount(capacity, granularity) bits.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const BitmapView& base,
                                                               const BitmapView& target,
                                                               BitmapOp op, uint64_t capacity,
                                                               uint64_t granularity);

}  // namespace cbt

#endif  // CBT_BITMAP_H_
