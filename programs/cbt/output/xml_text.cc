#include "programs/cbt/output/xml_text.h"

#include "absl/strings/str_replace.h"
#include "base/utf8.h"

namespace cbt::cli {

std::string XmlText(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (length == 0 || first < 0x20 || first == 0x7f) {
      clean += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      clean += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return absl::StrReplaceAll(clean,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace cbt::cli
