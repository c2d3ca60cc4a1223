#include "programs/revisions/http_server/request_head.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/text.h"

namespace cbt::kube::http_server {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";
// Of a Content-Length: less than 2^63 with room to spare.
constexpr size_t kMaxDigits = 18;

bool IsLength(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits &&
         text.find_first_not_of("0123456789") == absl::string_view::npos;
}

}  // namespace

std::optional<size_t> HeadLength(std::string_view bytes) {
  const size_t end = bytes.find(kHeadEnd);
  if (end == std::string_view::npos) return std::nullopt;
  return end + kHeadEnd.size();
}

const char* LengthDoubt(std::string_view head) {
  const size_t first_line = head.find(kLineEnd);
  const bool is_http_11 = head.substr(0, first_line).ends_with(" HTTP/1.1");
  head.remove_prefix(first_line + kLineEnd.size());
  int lengths = 0;
  int encodings = 0;
  while (!head.starts_with(kLineEnd) && !head.empty()) {
    const size_t end = head.find(kLineEnd);
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + kLineEnd.size());
    if (line.front() == ' ' || line.front() == '\t') return "a header is folded";
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;  // the parser refuses it
    const absl::string_view name = absl::StripAsciiWhitespace(AbslView(line.substr(0, colon)));
    const absl::string_view value = absl::StripAsciiWhitespace(AbslView(line.substr(colon + 1)));
    if (absl::EqualsIgnoreCase(name, "content-length")) {
      if (++lengths > 1) return "Content-Length is given twice";
      if (!IsLength(value)) return "Content-Length is not a number";
    } else if (absl::EqualsIgnoreCase(name, "transfer-encoding")) {
      if (++encodings > 1) return "Transfer-Encoding is given twice";
      if (!absl::EqualsIgnoreCase(value, "chunked")) return "Transfer-Encoding is not chunked";
    }
  }
  if (encodings > 0 && lengths > 0) return "both Transfer-Encoding and Content-Length are given";
  if (encodings > 0 && !is_http_11) return "Transfer-Encoding needs HTTP/1.1";
  return nullptr;
}

}  // namespace cbt::kube::http_server
