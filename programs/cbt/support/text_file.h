// Small files named by options.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_TEXT_FILE_H_
#define CBT_PROGRAMS_CBT_SUPPORT_TEXT_FILE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace cbt::cli {

// The whole file at `path`, at most 1 MiB; errors begin with `option`.
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a directory, too large), UNAVAILABLE.
absl::StatusOr<std::string> ReadTextFile(const std::string& option, const std::string& path);

// The lines `KEY=VALUE` of the file at `path`; empty lines are ignored. Errors give line numbers
// and never quote the lines, which are secrets.
// Errors: as above; INVALID_ARGUMENT for a line without `=` or a duplicate key.
absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(const std::string& option,
                                                               const std::string& path);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_TEXT_FILE_H_
