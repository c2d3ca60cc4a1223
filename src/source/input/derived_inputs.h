// Inputs made of a stream: the bytes that base64 text stands for, and a file of what is left.
#ifndef CBT_SOURCE_INPUT_DERIVED_INPUTS_H_
#define CBT_SOURCE_INPUT_DERIVED_INPUTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/file_io.h"
#include "cbt/source/byte_stream.h"

namespace cbt {

// Decodes `text`, which must outlive the stream, as it is read: a few KiB of memory. White space
// anywhere is skipped; the padding at the end may be missing.
// Errors of reading: DATA_LOSS where the text is not base64, those of `text`.
std::unique_ptr<ByteStream> MakeBase64Stream(ByteStream& text);

// Copies what is left of `stream` to a temporary file without a name, in $TMPDIR or /tmp, and maps
// it. Memory is bounded; the file is gone with the result.
// Errors: those of the stream; RESOURCE_EXHAUSTED if the directory is full; UNAVAILABLE.
absl::StatusOr<std::shared_ptr<const MappedFile>> SpoolToFile(ByteStream& stream);

}  // namespace cbt

#endif  // CBT_SOURCE_INPUT_DERIVED_INPUTS_H_
