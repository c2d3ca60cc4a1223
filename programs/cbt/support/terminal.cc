#include "programs/cbt/support/terminal.h"

#include <sys/ioctl.h>

#include <cstdlib>
#include <string_view>

#include "absl/strings/match.h"

namespace cbt::cli {

std::optional<size_t> TerminalColumns(int descriptor) noexcept {
  winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

Glyphs LocaleGlyphs() noexcept {
  std::string_view locale;
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr || *value == '\0') continue;
    locale = value;
    break;
  }
  // language[_territory][.codeset][@modifier]. The name decides, not the system's tables: minimal
  // systems have none for most languages.
  locale = locale.substr(0, locale.find('@'));
  const size_t dot = locale.find('.');
  if (dot == std::string_view::npos) return Glyphs::kAscii;
  const absl::string_view codeset(locale.data() + dot + 1, locale.size() - dot - 1);
  const bool utf8 =
      absl::EqualsIgnoreCase(codeset, "UTF-8") || absl::EqualsIgnoreCase(codeset, "UTF8");
  return utf8 ? Glyphs::kUnicode : Glyphs::kAscii;
}

}  // namespace cbt::cli
