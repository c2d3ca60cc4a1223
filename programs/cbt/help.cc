#include "programs/cbt/help.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cbt/simd.h"
#include "cbt/version.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

namespace {

// Where descriptions of options and subcommands begin.
constexpr size_t kDescriptionColumn = 32;
// Narrower ones are worse than lines that the terminal breaks.
constexpr size_t kMinColumns = kDescriptionColumn + 20;

// Where a line's text goes on after a break; nothing for an example, whose breaks matter.
std::optional<size_t> HangingIndent(std::string_view line) {
  if (!line.starts_with(' ')) return 0;
  // A name, a gap, and its description.
  const std::string_view name = line.substr(0, kDescriptionColumn);
  const bool described = name.starts_with("  -") || name.substr(2).find("  ") != name.npos;
  return described && name.ends_with(' ') ? std::optional(kDescriptionColumn) : std::nullopt;
}

// The number of single characters to insert, remove, replace or swap with their neighbour.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  std::iota(rows[0].begin(), rows[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    rows[i][0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows.back().back();
}

std::vector<std::string> SubcommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string Suggestion(const std::string& name) {
  return name.empty() ? "" : "; did you mean '" + name + "'?";
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kDescriptionColumn); }

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  std::string text;
  if (option->get_type_size() != 0) {
    // A positional argument is called by its name; its type TEXT adds nothing.
    const std::string type = option->get_type_name();
    if (!type.empty() && !(option->get_positional() && type == "TEXT")) text += " " + type;
    if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required() && option->nonpositional()) text += " (required)";
  }
  return text;
}

std::string HelpFormatter::make_option_usage(const CLI::Option* option) const {
  const std::string name = make_option_name(option, true);
  const bool endless = option->get_expected_max() >= CLI::detail::expected_max_vector_size;
  std::string text = name + (endless ? "..." : "");
  // The minimum count, and whether more may follow.
  for (int i = 1; i < option->get_expected_min(); ++i) text += " " + name;
  if (!endless && option->get_expected_max() > option->get_expected_min()) {
    text += " [" + name + "]";
  }
  return option->get_required() ? text : "[" + text + "]";
}

std::string WrappedHelp(std::string_view help, size_t columns) {
  if (columns < kMinColumns) return std::string(help);
  std::string text;
  while (!help.empty()) {
    const size_t end = std::min(help.find('\n'), help.size());
    std::string_view line = help.substr(0, end);
    help.remove_prefix(std::min(end + 1, help.size()));
    const std::optional<size_t> indent = HangingIndent(line);
    size_t begin = 0;  // of what has been written of this line before a break
    while (indent.has_value() && line.size() + begin > columns) {
      const size_t at = line.rfind(' ', columns - begin);
      if (at == std::string_view::npos || at + begin <= *indent) break;
      text.append(line.substr(0, at)).append("\n").append(*indent, ' ');
      line.remove_prefix(at + 1);
      begin = *indent;
    }
    text.append(line).append("\n");
  }
  return text;
}

std::string Nearest(std::string_view word, std::span<const std::string> names) {
  constexpr size_t kAbbreviation = 3;
  const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  // A slip of one key is more likely than an abbreviation.
  for (const std::string& name : names) {
    if (word.size() >= dashes + kAbbreviation && EditDistance(word, name) == 1) return name;
  }
  std::string begun;
  for (const std::string& name : names) {
    if (word.size() < dashes + kAbbreviation || !name.starts_with(word)) continue;
    if (!begun.empty()) return "";  // several begin like this
    begun = name;
  }
  if (!begun.empty()) return begun;
  // A third of the letters may be wrong, at most three.
  size_t best = std::min<size_t>(3, (word.size() - dashes) / 3) + 1;
  std::string nearest;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(word, name);
    if (distance >= best) continue;
    best = distance;
    nearest = name;
  }
  return nearest;
}

std::string UnknownArgument(const CLI::App& app, const std::string& argument) {
  if (argument.size() > 1 && argument.front() == '-') {
    const std::string option = argument.substr(0, argument.find('='));
    return "'" + option + "' is not an option" + Suggestion(Nearest(option, OptionNames(app)));
  }
  const std::vector<std::string> names = SubcommandNames(app);
  if (names.empty()) return "'" + argument + "' is one argument too many";
  return "'" + argument + "' is unknown" + Suggestion(Nearest(argument, names));
}

namespace {

std::string AvailableLevels(const char* separator) {
  std::string names;
  for (const SimdLevel level : AvailableSimdLevels()) {
    if (!names.empty()) names += separator;
    names += SimdLevelName(level);
  }
  return names;
}

}  // namespace

std::string VersionText(std::span<const std::string> lines) {
  std::string text = std::string(ProgramName()) + " " + kVersion + "\n";
  text += "simd levels available: " + AvailableLevels(" ") + "\n";
  text += std::string("simd level active: ") + SimdLevelName(ActiveSimdLevel()) + "\n";
  for (const KernelInfo& kernel : ActiveKernels()) {
    text += "kernel " + kernel.family + ": " + SimdLevelName(kernel.level) + "\n";
  }
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

absl::Status CheckSimdRequest() {
  if (SimdRequestHonoured()) return absl::OkStatus();
  const char* const request = std::getenv("CBT_SIMD");  // NOLINT(concurrency-mt-unsafe)
  return UsageError(std::string("CBT_SIMD: '") + (request == nullptr ? "" : request) + "'",
                    "this machine and build have " + AvailableLevels(", "));
}

}  // namespace cbt::cli
