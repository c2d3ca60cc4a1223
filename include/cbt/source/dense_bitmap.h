// Files with one bit per block, in any layout: the change metadata of most storage arrays. Part of
// cbt::source. For bits already in memory see cbt/bitmap.h.
#ifndef CBT_SOURCE_DENSE_BITMAP_H_
#define CBT_SOURCE_DENSE_BITMAP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/image.h"

namespace cbt {

// Where the bits lie and what they mean. Examples:
//   QEMU's bitmaps, roaring bitsets:            the default order
//   XenServer, VDI.list_changed_blocks:         64 KiB, most significant first, base64
//   DRBD on disk:                               4 KiB, the default order, a header
//   32-bit words of a big-endian machine:       reversed_word_bytes = 4
struct DenseBitmapLayout {
  uint64_t granularity = 0;  // bytes of the volume per bit; required
  BitmapFormat format = {};
  uint64_t header_bytes = 0;  // before the bits, skipped
  uint64_t first_bit = 0;     // the volume's first bit, counted from the end of the header
};

// A cursor over the blocks whose bits are set in `file`. Bits after the volume's last one are
// ignored. Extents are maximal; the last one is cut at `capacity` (bytes).
// Errors: INVALID_ARGUMENT for the layout and for a file that is too short: a missing bit says
//         nothing about its block. From Next(): those of Image::Read(), ABORTED if the file has
//         changed.
// Cost:   Seek() O(1); reads the bits once, 1 MiB at a time.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeDenseBitmapCursor(
    std::shared_ptr<const Image> file, const DenseBitmapLayout& layout, uint64_t capacity);

// The same for bits from a stream, as base64 text if `base64` (white space is allowed). They are
// read and decoded 1 MiB at a time, and kept as a change map; what follows the volume's last bit is
// not read.
// Errors: as above, DATA_LOSS for invalid base64, RESOURCE_EXHAUSTED over kMaxMapBytes.
absl::StatusOr<std::unique_ptr<ExtentCursor>> ReadDenseBitmap(ByteStream& stream, bool base64,
                                                              const DenseBitmapLayout& layout,
                                                              uint64_t capacity);

// The blocks that a partclone image (format 0002) holds: those in use by its file system, and what
// follows that on the partition. Reads the header and the bitmap.
// Errors: INVALID_ARGUMENT for anything else, UNIMPLEMENTED for other formats, DATA_LOSS for wrong
//         checksums and numbers that contradict each other, RESOURCE_EXHAUSTED, those of the
//         stream.
absl::StatusOr<ChangeMap> ReadPartclone(ByteStream& stream);

}  // namespace cbt

#endif  // CBT_SOURCE_DENSE_BITMAP_H_
