// A document as an output file or on stdout, and text for XML documents.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_DOCUMENT_H_
#define CBT_PROGRAMS_CBT_OUTPUT_DOCUMENT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "programs/cbt/support/files.h"

namespace cbt::cli {

// Writes `document` to stdout if `path` names it (IsStdout()), else to a file that appears complete
// or not at all, and replaces none of `inputs`.
// Errors: those of FindOutputPlace() and WriteOutputFile().
absl::Status WriteDocument(const std::string& path, const InputFiles& inputs,
                           std::string_view document);

// `text` for an element or a quoted attribute: no mark-up; U+FFFD for control characters and bytes
// that are not valid UTF-8.
std::string XmlText(std::string_view text);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_DOCUMENT_H_
