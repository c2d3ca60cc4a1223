// A stream as a file, for readers that need all of its bytes at once.
#ifndef CBT_SOURCE_INPUT_SPOOLED_FILE_H_
#define CBT_SOURCE_INPUT_SPOOLED_FILE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/file_io.h"
#include "cbt/source/byte_stream.h"

namespace cbt {

// Copies what is left of `stream` to a temporary file without a name, in $TMPDIR or /tmp, and maps
// it. Memory is bounded; the file is gone with the result.
// Errors: those of the stream; RESOURCE_EXHAUSTED if the directory is full; UNAVAILABLE.
absl::StatusOr<std::shared_ptr<const MappedFile>> SpoolToFile(ByteStream& stream);

}  // namespace cbt

#endif  // CBT_SOURCE_INPUT_SPOOLED_FILE_H_
