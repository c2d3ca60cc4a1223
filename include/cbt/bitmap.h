// Dense bitmaps in memory, cursors over the runs of set bits in one or in the combination of two of
// them, and counts of the same.
//
// Bit k of a volume's bitmap stands for the bytes [k * granularity, (k + 1) * granularity).
#ifndef CBT_BITMAP_H_
#define CBT_BITMAP_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/executor.h"

namespace cbt {

// How somebody's bytes hold bits.
struct BitmapFormat {
  // Which bit of byte b / 8 is bit b: number b % 8 counted from the least significant one, or from
  // the most significant one.
  enum class BitOrder : uint8_t { kLeastSignificantFirst, kMostSignificantFirst };
  BitOrder order = BitOrder::kLeastSignificantFirst;

  // A clear bit means what a set one does elsewhere (clear: changed, or allocated).
  bool inverted = false;

  // The bits were stored as words of this many bytes (1, 2, 4 or 8) by a machine whose byte order
  // is not the one of `order`: the bytes of each word lie in reverse. So a big-endian machine's
  // 32-bit words with bit 0 as the least significant one are {kLeastSignificantFirst,
  // .reversed_word_bytes = 4}.
  uint8_t reversed_word_bytes = 1;

  friend bool operator==(const BitmapFormat&, const BitmapFormat&) = default;
};

// A view of `bit_count()` bits that somebody else owns; it must not outlive them, and they must not
// change while a cursor reads them. The bytes need no alignment, the first bit none either. Where
// the format is the default one and the first bit starts a byte, bits are read in place at full
// speed; else through a small copy in the first-level cache.
class BitmapView {
 public:
  // The empty bitmap.
  BitmapView() = default;

  // The bits [first_bit, first_bit + bit_count) of `bytes`.
  // Errors: INVALID_ARGUMENT when `bytes` is too short to hold them (in whole words, where words
  //         are reversed), or for a word size that is none.
  static absl::StatusOr<BitmapView> Create(std::span<const uint8_t> bytes, uint64_t first_bit,
                                           uint64_t bit_count, BitmapFormat format = {});

  uint64_t bit_count() const noexcept { return bit_count_; }

  // The bits [begin, end) as a view of their own. Requires: begin <= end <= bit_count().
  BitmapView Slice(uint64_t begin, uint64_t end) const noexcept;

  // Copies the 64-bit words that hold bits [position, position + 64 * words) of the view to `out`,
  // in the default format; bits past the end of the view are 0. `position` <= bit_count().
  // O(words).
  void CopyWords(uint64_t position, uint64_t* out, size_t words) const noexcept;

  // The address of bit `position` when it starts a byte, at least 64 * words bits follow and the
  // format is the default one, so that they can be read in place with unaligned loads; else
  // nullptr.
  const uint8_t* InPlace(uint64_t position, uint64_t words) const noexcept;

 private:
  BitmapView(const uint8_t* bytes, uint64_t first_bit, uint64_t bit_count,
             BitmapFormat format) noexcept
      : bytes_(bytes), first_bit_(first_bit), bit_count_(bit_count), format_(format) {}

  const uint8_t* bytes_ = nullptr;
  uint64_t first_bit_ = 0;
  uint64_t bit_count_ = 0;
  BitmapFormat format_;
};

// How two bitmaps combine into the one whose runs are reported.
enum class BitmapOp {
  kXor,     // set in one of them only: blocks whose state differs
  kAndNot,  // set in the second and not in the first: newly set
  kOr,      // set in either
  kAnd,     // set in both
};

struct BitmapOptions {
  // Where other threads work on parts of the bitmap; must outlive the cursor. Its tasks never wait.
  Executor* executor = nullptr;

  // Threads at work for one cursor at most, the one that calls Next() included. The bitmap is cut
  // into contiguous parts whose extents wait in memory, at most 5 MiB a thread, until it is their
  // turn; the result is the same to the bit. Pays for large bitmaps; a cursor that is destroyed or
  // moved waits for the parts at work.
  size_t parallel = 1;
};

// The runs of set bits in `bitmap` as extents of a volume of `capacity` bytes. Extents are maximal;
// the last one is cut at the capacity.
// Requires: bitmap.bit_count() == BlockCount(capacity, granularity); a shorter bitmap would hide
//           changes and is refused.
// Errors:   INVALID_ARGUMENT. The cursor itself never fails.
// Cost:     Seek() O(1); Next() one pass over the bits it moves past.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const BitmapView& bitmap,
                                                               uint64_t capacity,
                                                               uint64_t granularity,
                                                               const BitmapOptions& options = {});

// As above for the runs of `op` applied to `base` and `target` (in this order), without building
// the combined bitmap. Both have BlockCount(capacity, granularity) bits.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const BitmapView& base,
                                                               const BitmapView& target,
                                                               BitmapOp op, uint64_t capacity,
                                                               uint64_t granularity,
                                                               const BitmapOptions& options = {});

// What a bitmap, or two, hold in a range of blocks.
struct BitmapCounts {
  uint64_t blocks = 0;  // set bits
  uint64_t runs = 0;    // maximal runs of them; one that reaches over an end of the range counts

  friend bool operator==(const BitmapCounts&, const BitmapCounts&) = default;
};

// Counts the set bits of `bitmap` among [begin, end), without extracting runs: what a progress bar
// or an estimate needs. Requires: begin <= end <= bit_count().
// Cost: one pass over the range at the speed of memory.
BitmapCounts CountBlocks(const BitmapView& bitmap, uint64_t begin, uint64_t end) noexcept;

// As above for `op` applied to `base` and `target`, which have the same bit_count().
BitmapCounts CountBlocks(const BitmapView& base, const BitmapView& target, BitmapOp op,
                         uint64_t begin, uint64_t end) noexcept;

// The bytes that a cursor over `bitmap` reports from `offset` (bytes, rounded down to the
// granularity) to the end: blocks times granularity, less what the last block has past the
// capacity.
// Errors: INVALID_ARGUMENT as MakeBitmapCursor(), OUT_OF_RANGE when offset > capacity.
absl::StatusOr<uint64_t> BytesToCome(const BitmapView& bitmap, uint64_t capacity,
                                     uint64_t granularity, uint64_t offset);
absl::StatusOr<uint64_t> BytesToCome(const BitmapView& base, const BitmapView& target, BitmapOp op,
                                     uint64_t capacity, uint64_t granularity, uint64_t offset);

}  // namespace cbt

#endif  // CBT_BITMAP_H_
