// The classes by which pictures of a history show how much of a cell changed.
#ifndef CBT_PROGRAMS_CBT_HISTORY_SHADES_H_
#define CBT_PROGRAMS_CBT_HISTORY_SHADES_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace cbt::cli {

struct HistoryShade {
  double most;          // the largest share of a cell in this class, 0 .. 1
  const char* text;     // for the legend
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
inline constexpr std::array<HistoryShade, 7> kHistoryShades = {{
    {0, "none", '.', "·", "#f1f1ee", "#22272b", 255, 248},
    {0.001, "to 0.1 %", ':', "▁", "#c7e9b4", "#2a4a6d", 193, 16},
    {0.01, "to 1 %", '-', "▂", "#7fcdbb", "#2a6391", 115, 16},
    {0.05, "to 5 %", '=', "▃", "#41b6c4", "#2583ad", 74, 16},
    {0.2, "to 20 %", '+', "▅", "#1d91c0", "#38a7ba", 31, 231},
    {0.5, "to 50 %", '*', "▆", "#225ea8", "#7fcdbb", 25, 231},
    {1, "to 100 %", '#', "█", "#0c2c84", "#e4f7c7", 18, 231},
}};

// The class of a cell of `size` bytes; class 0 only if nothing in it changed.
inline size_t HistoryShadeOf(uint64_t changed, uint64_t size) noexcept {
  if (changed == 0) return 0;
  const double share = static_cast<double>(changed) / static_cast<double>(size);
  size_t shade = 1;
  while (shade + 1 < kHistoryShades.size() && share > kHistoryShades[shade].most) ++shade;
  return shade;
}

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_HISTORY_SHADES_H_
