// Text for XML documents.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_XML_TEXT_H_
#define CBT_PROGRAMS_CBT_OUTPUT_XML_TEXT_H_

#include <string>
#include <string_view>

namespace cbt::cli {

// `text` for an element or a quoted attribute: no mark-up; U+FFFD for control characters and bytes
// that are not valid UTF-8.
std::string XmlText(std::string_view text);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_XML_TEXT_H_
