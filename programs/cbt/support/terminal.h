// What is known about a terminal.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_TERMINAL_H_
#define CBT_PROGRAMS_CBT_SUPPORT_TERMINAL_H_

#include <cstddef>
#include <optional>

namespace cbt::cli {

// The columns of the terminal at `descriptor`; empty if it is not one, or its size is unknown.
std::optional<size_t> TerminalColumns(int descriptor) noexcept;

// The characters of which pictures in text are made.
enum class Glyphs { kAscii, kUnicode };

// kUnicode if the locale of the environment (LC_ALL, LC_CTYPE, LANG) names UTF-8. Reads the
// environment: not while another thread changes it.
Glyphs LocaleGlyphs() noexcept;

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_TERMINAL_H_
