#include "programs/cbt/output/document.h"

#include <unistd.h>

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/files.h"

namespace cbt::cli {

absl::Status WriteDocument(const std::string& path, const InputFiles& inputs,
                           std::string_view document) {
  if (IsStdout(path)) {
    Output output(STDOUT_FILENO, "stdout");
    output.Append(document);
    return output.Close();
  }
  const absl::StatusOr<OutputPlace> place = FindOutputPlace(path, inputs);
  if (!place.ok()) return place.status();
  const std::span<const uint8_t> parts[] = {
      {reinterpret_cast<const uint8_t*>(document.data()), document.size()}};
  return WriteOutputFile(place->path, parts);
}

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
