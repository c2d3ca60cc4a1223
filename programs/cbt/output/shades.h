// The classes by which all pictures show how much of a cell changed or is allocated.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_SHADES_H_
#define CBT_PROGRAMS_CBT_OUTPUT_SHADES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "programs/cbt/support/terminal.h"

namespace cbt::cli {

struct Shade {
  double most;          // the largest share of a cell in this class, 0 .. 1
  const char* text;     // `most` for the legend
  char ascii;           // for plain text
  const char* unicode;  // the same in UTF-8
  const char* fill;     // for SVG and pages
  const char* dark;     // the same on a dark page
  int background;       // of 256 colours
  int foreground;
};

// A sequence of one hue range whose lightness falls steadily, so that it is legible in grey and
// with any kind of colour blindness. Small shares have classes of their own: most deltas change
// few blocks of a cell. On a dark page the order of lightness is reversed.
inline constexpr std::array<Shade, 7> kShades = {{
    {0, "none", '.', "·", "#f1f1ee", "#22272b", 255, 248},
    {0.001, "0.1 %", ':', "▁", "#c7e9b4", "#2a4a6d", 193, 16},
    {0.01, "1 %", '-', "▂", "#7fcdbb", "#2a6391", 115, 16},
    {0.05, "5 %", '=', "▃", "#41b6c4", "#2583ad", 74, 16},
    {0.2, "20 %", '+', "▅", "#1d91c0", "#38a7ba", 31, 231},
    {0.5, "50 %", '*', "▆", "#225ea8", "#7fcdbb", 25, 231},
    {1, "100 %", '#', "█", "#0c2c84", "#e4f7c7", 18, 231},
}};

// The class of a cell of `size` bytes; class 0 only if nothing in it changed.
inline size_t ShadeOf(uint64_t changed, uint64_t size) noexcept {
  if (changed == 0) return 0;
  const double share = static_cast<double>(changed) / static_cast<double>(size);
  size_t shade = 1;
  while (shade + 1 < kShades.size() && share > kShades[shade].most) ++shade;
  return shade;
}

inline std::string_view GlyphOf(size_t shade, Glyphs glyphs) noexcept {
  const Shade& look = kShades[shade];
  return glyphs == Glyphs::kAscii ? std::string_view(&look.ascii, 1) : look.unicode;
}

// A line of less than 80 characters, without its end.
inline std::string ShadesLegend(Glyphs glyphs) {
  std::string text = "of a cell at most:";
  for (size_t shade = 0; shade < kShades.size(); ++shade) {
    text.append(shade == 0 ? " " : "  ").append(GlyphOf(shade, glyphs)).append(" ");
    text.append(kShades[shade].text);
  }
  return text;
}

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_SHADES_H_
