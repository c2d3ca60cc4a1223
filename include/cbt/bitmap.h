// Dense bitmaps in memory, which own or borrow their bytes; cursors over the runs of set bits in
// one bitmap or in a combination of two, and counts of those bits and runs.
//
// Bit k of a volume's bitmap is the bytes [k * granularity, (k + 1) * granularity).
#ifndef CBT_BITMAP_H_
#define CBT_BITMAP_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/executor.h"
#include "cbt/lifetime.h"

namespace cbt {

// How a bitmap's bytes hold its bits.
struct BitmapFormat {
  // Bit b is bit b % 8 of byte b / 8, counted from the least or from the most significant bit.
  enum class BitOrder : uint8_t { kLeastSignificantFirst, kMostSignificantFirst };
  BitOrder order = BitOrder::kLeastSignificantFirst;

  // Clear bits, instead of set ones, mean changed (or allocated).
  bool inverted = false;

  // The bits were stored as words of this many bytes (1, 2, 4 or 8) by a machine whose byte order
  // differs from `order`: the bytes of each word are reversed. A big-endian machine's 32-bit words
  // with bit 0 as the least significant one are {kLeastSignificantFirst, .reversed_word_bytes = 4}.
  uint8_t reversed_word_bytes = 1;

  friend bool operator==(const BitmapFormat&, const BitmapFormat&) = default;
};

// A view of `bit_count()` bits that the caller keeps. It must not outlive them, and they must not
// change while a cursor reads them. For bits that outlive the function that fetched them see
// Bitmap. Neither the bytes nor the first bit need be aligned. Cursors read bits in place at full
// speed, in every format and from any first bit. Only two bitmaps whose bits lie differently
// (another order or word size, other first bits within a byte or reversed word) are read through a
// small copy in the first-level cache.
class BitmapView {
 public:
  // The empty bitmap.
  BitmapView() = default;

  // The bits [first_bit, first_bit + bit_count) of `bytes`.
  // Errors: INVALID_ARGUMENT when `bytes` is too short to hold them (in whole words, if words are
  //         reversed), or for an unsupported word size.
  static absl::StatusOr<BitmapView> Create(std::span<const uint8_t> bytes, uint64_t first_bit,
                                           uint64_t bit_count, BitmapFormat format = {});
  // A view of a temporary would dangle: Bitmap::Create() keeps it.
  template <TemporaryBytes Bytes>
  static absl::StatusOr<BitmapView> Create(Bytes&& bytes, uint64_t first_bit, uint64_t bit_count,
                                           BitmapFormat format = {}) = delete;

  uint64_t bit_count() const noexcept { return bit_count_; }

  // A view of the bits [begin, end). Requires: begin <= end <= bit_count().
  BitmapView Slice(uint64_t begin, uint64_t end) const noexcept;

  // Copies the 64-bit words that hold bits [position, position + 64 * words) of the view to `out`,
  // in the default format; bits past the end of the view are 0. `position` <= bit_count().
  // O(words).
  void CopyWords(uint64_t position, uint64_t* out, size_t words) const noexcept;

  // The address of bit `position` if the words can be read in place with unaligned loads: the bit
  // starts a byte, at least 64 * words bits follow, and the format is the default. Otherwise
  // nullptr.
  const uint8_t* InPlace(uint64_t position, uint64_t words) const noexcept;

 private:
  friend class BitmapPair;  // src/core/bitmap_pair.h

  BitmapView(const uint8_t* bytes, uint64_t first_bit, uint64_t bit_count,
             BitmapFormat format) noexcept
      : bytes_(bytes), first_bit_(first_bit), bit_count_(bit_count), format_(format) {}

  const uint8_t* bytes_ = nullptr;
  uint64_t first_bit_ = 0;
  uint64_t bit_count_ = 0;
  BitmapFormat format_;
};

// A bitmap that keeps its bytes. Cheap to copy: copies, and the cursors over them, share the bytes,
// which must not change.
class Bitmap {
 public:
  // The empty bitmap.
  Bitmap() = default;

  // The bits [first_bit, first_bit + bit_count) of `bytes`: a vector that is moved in, or bytes
  // with their owner. Errors as BitmapView::Create().
  //
  // snippet: tests/consumer/snippets/core.cc#bitmap
  //   std::vector<uint8_t> bits = Fetch(snapshot);
  //   auto bitmap = cbt::Bitmap::Create(std::move(bits), /*first_bit=*/0, BlockCount(geometry));
  //   if (!bitmap.ok()) return bitmap.status();  // too few bits
  //   return cbt::MakeBitmapCursor(*bitmap, geometry);
  static absl::StatusOr<Bitmap> Create(SharedBytes bytes, uint64_t first_bit, uint64_t bit_count,
                                       BitmapFormat format = {});

  uint64_t bit_count() const noexcept { return view_.bit_count(); }

  // The bits [begin, end), which share the bytes. Requires: begin <= end <= bit_count().
  Bitmap Slice(uint64_t begin, uint64_t end) const;

  // Valid as long as this bitmap or a copy of it.
  const BitmapView& view() const& noexcept CBT_LIFETIME_BOUND { return view_; }
  void view() const&& = delete;

  // What keeps the bytes.
  const std::shared_ptr<const void>& owner() const noexcept CBT_LIFETIME_BOUND { return owner_; }

 private:
  Bitmap(std::shared_ptr<const void> owner, const BitmapView& view) noexcept
      : owner_(std::move(owner)), view_(view) {}

  std::shared_ptr<const void> owner_;
  BitmapView view_;
};

// How two bitmaps are combined before runs are reported.
enum class BitmapOp {
  kXor,     // set in exactly one: blocks whose state differs
  kAndNot,  // set in the second and not in the first: newly set
  kOr,      // set in either
  kAnd,     // set in both
};

struct BitmapOptions {
  // Runs the work of other threads; must outlive the cursor. The tasks never block.
  Executor* executor = nullptr;

  // The most threads that work for one cursor, including the one that calls Next(). The bitmap is
  // cut into contiguous parts whose extents wait in memory for their turn, at most 5 MiB per
  // thread; the result is identical. Worthwhile for large bitmaps. Destroying or seeking a cursor
  // waits for the parts in progress.
  size_t parallel = 1;
};

// The runs of set bits in `bitmap` as maximal extents of a volume; the last one is cut at the
// capacity. The cursor keeps the bitmap's bytes.
// Requires: bitmap.bit_count() == BlockCount(geometry); a shorter bitmap would hide changes.
// Errors:   INVALID_ARGUMENT. The cursor itself never fails.
// Cost:     Seek() is O(1); Next() makes one pass over the bits it covers.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const Bitmap& bitmap,
                                                               const VolumeGeometry& geometry,
                                                               const BitmapOptions& options = {});

// As above, for `op` applied to `base` and `target` (in this order), without building the combined
// bitmap. Both have BlockCount(geometry) bits.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const Bitmap& base,
                                                               const Bitmap& target, BitmapOp op,
                                                               const VolumeGeometry& geometry,
                                                               const BitmapOptions& options = {});

// The same over bits that the caller keeps, unchanged, until the cursor is gone. For bitmaps that
// live as long as the program, or cursors that do not leave the function.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedBitmapCursor(
    const BitmapView& bitmap, const VolumeGeometry& geometry, const BitmapOptions& options = {});
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedBitmapCursor(
    const BitmapView& base, const BitmapView& target, BitmapOp op, const VolumeGeometry& geometry,
    const BitmapOptions& options = {});

// A view keeps nothing: give the cursor a Bitmap, or say MakeBorrowedBitmapCursor().
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(
    const BitmapView& bitmap, const VolumeGeometry& geometry,
    const BitmapOptions& options = {}) = delete;
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(
    const BitmapView& base, const BitmapView& target, BitmapOp op, const VolumeGeometry& geometry,
    const BitmapOptions& options = {}) = delete;

// Counts of a bitmap, or of a combination of two, in a range of blocks.
struct BitmapCounts {
  uint64_t blocks = 0;  // set bits
  uint64_t runs = 0;    // maximal runs of them; a run that crosses an end of the range counts

  friend bool operator==(const BitmapCounts&, const BitmapCounts&) = default;
};

// Counts the set bits of `bitmap` among [begin, end), without extracting extents, for progress bars
// and estimates. Requires: begin <= end <= bit_count().
// Cost: one pass over the range at memory speed.
BitmapCounts CountBlocks(const BitmapView& bitmap, uint64_t begin, uint64_t end) noexcept;

// As above for `op` applied to `base` and `target`, which have the same bit_count().
BitmapCounts CountBlocks(const BitmapView& base, const BitmapView& target, BitmapOp op,
                         uint64_t begin, uint64_t end) noexcept;

// The bytes that a cursor over `bitmap` reports from `offset` (bytes, rounded down to the
// granularity) to the end: blocks times granularity, less the part of the last block past the
// capacity.
// Errors: INVALID_ARGUMENT as MakeBitmapCursor(), OUT_OF_RANGE when offset > capacity.
absl::StatusOr<uint64_t> BytesToCome(const BitmapView& bitmap, const VolumeGeometry& geometry,
                                     uint64_t offset);
absl::StatusOr<uint64_t> BytesToCome(const BitmapView& base, const BitmapView& target, BitmapOp op,
                                     const VolumeGeometry& geometry, uint64_t offset);

}  // namespace cbt

#endif  // CBT_BITMAP_H_
