// Strings for JSON output.
#ifndef CBT_BASE_JSON_STRING_H_
#define CBT_BASE_JSON_STRING_H_

#include <string>
#include <string_view>

namespace cbt {

// `text` as a JSON string with its quotes, in ASCII and UTF-8. Bytes that are not valid UTF-8 (file
// names may hold any) become U+FFFD.
std::string JsonString(std::string_view text);
void AppendJsonString(std::string& json, std::string_view text);

}  // namespace cbt

#endif  // CBT_BASE_JSON_STRING_H_
