// The place of an output file.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_OUTPUT_PLACE_H_
#define CBT_PROGRAMS_CBT_SUPPORT_OUTPUT_PLACE_H_

#include <sys/stat.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "programs/cbt/support/input_files.h"

namespace cbt::cli {

// True for "-" and for /dev/stdout, which is a link: its target would be replaced, and its contents
// lost.
bool IsStdout(const std::string& path);

struct OutputPlace {
  std::string path;  // not a symbolic link
  std::optional<struct stat> present = {};
};

// Checks what an output file would replace: nothing, or a regular file. The target of a symbolic
// link is replaced, and never a device, a pipe or a socket: such a node would be gone for all its
// users.
// Errors: INVALID_ARGUMENT; NOT_FOUND for a dangling link; as OpenError().
//
// None of `inputs` is replaced: the only image of a volume could be lost to a few bytes of
// metadata. Nor is anything created in a directory that is an input.
absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path, const InputFiles& inputs);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_OUTPUT_PLACE_H_
