// Detects damaged lists that would pass for raw images.
#ifndef CBT_SOURCE_OPEN_LIST_LOOK_H_
#define CBT_SOURCE_OPEN_LIST_LOOK_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "cbt/source/byte_stream.h"

namespace cbt {

inline constexpr uint64_t kSectorBytes = 512;

// Whether a regular file of no detected format may pass for a raw image. A list that was emptied,
// cut or re-encoded has no detected format either, and as an image it would silently describe a
// tiny volume. So these are refused:
//
//   - an empty file, and
//   - one that begins, after blanks, like a list ('[', '{', '<' or a byte order mark; in UTF-16 and
//     UTF-32 too) or holds only blanks, and continues as text: to its end, or for 64 characters if
//     its size is not a multiple of 512 bytes.
//
// An image of whole sectors passes, whatever it begins with, if it holds a single byte that can't
// be text (a control character). Nothing is read after the first such byte.
//
// `first`: the beginning of the file of `size` bytes, as much as Peek() returns for `stream`, which
// is at its beginning and may be moved.
// Errors: INVALID_ARGUMENT, those of the stream.
absl::Status CheckIsNoList(std::span<const uint8_t> first, uint64_t size, ByteStream& stream);

}  // namespace cbt

#endif  // CBT_SOURCE_OPEN_LIST_LOOK_H_
