// A document as an output file or on stdout.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_DOCUMENT_H_
#define CBT_PROGRAMS_CBT_OUTPUT_DOCUMENT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "programs/cbt/support/input_files.h"

namespace cbt::cli {

// Writes `document` to stdout if `path` names it (IsStdout()), else to a file that appears complete
// or not at all, and replaces none of `inputs`.
// Errors: those of FindOutputPlace() and WriteFileAtomically().
absl::Status WriteDocument(const std::string& path, const InputFiles& inputs,
                           std::string_view document);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_DOCUMENT_H_
