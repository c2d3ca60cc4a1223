// The bytes that base64 text stands for.
#ifndef CBT_SOURCE_INPUT_BASE64_STREAM_H_
#define CBT_SOURCE_INPUT_BASE64_STREAM_H_

#include <memory>

#include "cbt/source/byte_stream.h"

namespace cbt {

// Decodes `text`, which must outlive the stream, as it is read: a few KiB of memory. White space
// anywhere is skipped; the padding at the end may be missing.
// Errors of reading: DATA_LOSS where the text is not base64, those of `text`.
std::unique_ptr<ByteStream> MakeBase64Stream(ByteStream& text);

}  // namespace cbt

#endif  // CBT_SOURCE_INPUT_BASE64_STREAM_H_
