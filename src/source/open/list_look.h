// What is no list that can be read, and still no raw image either.
#ifndef CBT_SOURCE_OPEN_LIST_LOOK_H_
#define CBT_SOURCE_OPEN_LIST_LOOK_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "cbt/source/byte_stream.h"

namespace cbt {

// Whether a regular file may pass for a raw image because it is of no format that is known by its
// content. A list that was emptied, cut or written in another encoding is none either, and as an
// image it would tell of a tiny volume, in silence. So what is refused is
//
//   - an empty file, and
//   - one that begins, after blanks, as lists do ('[', '{', '<' or a byte order mark; as UTF-16 and
//     UTF-32 too) or holds nothing but blanks, and goes on as text: to its end, or for 64
//     characters when its size is no multiple of 512 bytes.
//
// So an image of whole sectors passes, whatever it begins with, when it holds a single byte that is
// of no text (a control character). Nothing is read behind the first such byte.
//
// `first`: the beginning of the file of `size` bytes, as much as Peek() gives of `stream`, which
// stands at the beginning and may have moved on afterwards.
// Errors: INVALID_ARGUMENT, those of the stream.
absl::Status CheckIsNoList(std::span<const uint8_t> first, uint64_t size, ByteStream& stream);

}  // namespace cbt

#endif  // CBT_SOURCE_OPEN_LIST_LOOK_H_
