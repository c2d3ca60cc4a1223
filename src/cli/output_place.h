// Where a file goes that a command was told to write.
#ifndef CBT_CLI_OUTPUT_PLACE_H_
#define CBT_CLI_OUTPUT_PLACE_H_

#include <sys/stat.h>

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"

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
// `inputs`: what the command reads, as the user named it: a path, of a folder each file in it, "-"
// for the standard input; other addresses and "" are passed over. None of them is replaced: a
// volume's only image would be gone for a few bytes about it.
absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path,
                                            std::span<const std::string> inputs);

// Whether both are one file by their numbers: for what is refused when in doubt.
bool MayBeSameFile(const struct stat& a, const struct stat& b) noexcept;

}  // namespace cbt::cli

#endif  // CBT_CLI_OUTPUT_PLACE_H_
