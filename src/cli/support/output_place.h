// Where a file goes that a command was told to write.
#ifndef CBT_CLI_SUPPORT_OUTPUT_PLACE_H_
#define CBT_CLI_SUPPORT_OUTPUT_PLACE_H_

#include <sys/stat.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/support/input_files.h"

namespace cbt::cli {

struct OutputPlace {
  std::string path;  // no link
  std::optional<struct stat> present = {};
};

// What a file that is written whole may replace: nothing, or a regular file. Of a link what it
// points to is replaced, and never a device, a pipe or a socket: a node that was there for all is
// gone for all when it is.
// Errors: INVALID_ARGUMENT; NOT_FOUND for a link to nothing; as OpenError().
//
// None of `inputs` is replaced: a volume's only image would be gone for a few bytes about it. Nor
// does anything new come into a folder that is one of them.
absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path, const InputFiles& inputs);

}  // namespace cbt::cli

#endif  // CBT_CLI_SUPPORT_OUTPUT_PLACE_H_
