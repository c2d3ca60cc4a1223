#include "programs/cbt/options/go_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::cli {
namespace {

using std::chrono::milliseconds;

absl::Status ParseError() { return absl::InvalidArgumentError("parse error"); }

// The digits of an integer without underscores, which may stand between digits and after a prefix.
std::optional<std::string> WithoutUnderscores(std::string_view digits, bool prefixed) {
  std::string plain;
  bool digit = prefixed;
  for (const char c : digits) {
    if (c == '_') {
      if (!digit) return std::nullopt;
      digit = false;
      continue;
    }
    plain.push_back(c);
    digit = true;
  }
  if (plain.empty() || !digit) return std::nullopt;
  return plain;
}

// One unit of a duration, in nanoseconds; 0 if unknown.
double UnitOf(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, double>, 8> kUnits = {{
      {"ns", 1},
      {"us", 1e3},
      {"\xc2\xb5s", 1e3},  // the micro sign
      {"\xce\xbcs", 1e3},  // the Greek letter mu
      {"ms", 1e6},
      {"s", 1e9},
      {"m", 60e9},
      {"h", 3600e9},
  }};
  for (const auto& [unit, nanoseconds] : kUnits) {
    if (unit == name) return nanoseconds;
  }
  return 0;
}

bool IsNumeric(char c) { return (c >= '0' && c <= '9') || c == '.'; }

std::string Text(milliseconds time) {
  const int64_t count = time.count();
  if (count % 60'000 == 0 && count != 0) return absl::StrCat(count / 60'000, "m");
  if (count % 1000 == 0) return absl::StrCat(count / 1000, "s");
  return absl::StrCat(count, "ms");
}

template <typename Value, typename Parse>
GoFlags::Set Setter(Value* target, Parse parse) {
  return [target, parse](std::string_view text) {
    const absl::StatusOr<Value> value = parse(text);
    if (!value.ok()) return value.status();
    *target = *value;
    return absl::OkStatus();
  };
}

}  // namespace

absl::StatusOr<bool> ParseGoBool(std::string_view text) {
  for (const std::string_view yes : {"1", "t", "T", "true", "TRUE", "True"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "f", "F", "false", "FALSE", "False"}) {
    if (text == no) return false;
  }
  return ParseError();
}

absl::StatusOr<int64_t> ParseGoInt(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int base = 10;
  bool prefixed = false;
  if (text.size() > 1 && text.front() == '0') {
    const char kind = text[1] >= 'A' && text[1] <= 'Z' ? static_cast<char>(text[1] + 32) : text[1];
    base = kind == 'x' ? 16 : kind == 'b' ? 2 : 8;
    text.remove_prefix(kind == 'x' || kind == 'b' || kind == 'o' ? 2 : 1);
    prefixed = true;
  }
  const std::optional<std::string> digits = WithoutUnderscores(text, prefixed);
  if (!digits.has_value()) return ParseError();
  uint64_t magnitude = 0;
  const char* const end = digits->data() + digits->size();
  const auto [stop, error] = std::from_chars(digits->data(), end, magnitude, base);
  if (error == std::errc::result_out_of_range) {
    return absl::InvalidArgumentError("value out of range");
  }
  if (error != std::errc() || stop != end) return ParseError();
  const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (magnitude > most + (negative ? 1 : 0)) {
    return absl::InvalidArgumentError("value out of range");
  }
  return static_cast<int64_t>(negative ? uint64_t{0} - magnitude : magnitude);
}

absl::StatusOr<double> ParseGoFloat(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(value)) {
    return ParseError();
  }
  return value;
}

absl::StatusOr<milliseconds> ParseGoDuration(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return milliseconds{0};
  if (text.empty()) return ParseError();
  double nanoseconds = 0;
  while (!text.empty()) {
    const auto number_end = std::find_if_not(text.begin(), text.end(), IsNumeric);
    const std::string_view number = text.substr(0, static_cast<size_t>(number_end - text.begin()));
    text.remove_prefix(number.size());
    const auto unit_end = std::find_if(text.begin(), text.end(), IsNumeric);
    const std::string_view unit = text.substr(0, static_cast<size_t>(unit_end - text.begin()));
    text.remove_prefix(unit.size());
    double value = 0;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value,
                                               std::chars_format::fixed);
    const double scale = UnitOf(unit);
    if (error != std::errc() || stop != number.data() + number.size() || scale == 0) {
      return ParseError();
    }
    nanoseconds += value * scale;
  }
  constexpr double kMost = 9.2e18;  // Go has 64 bits of nanoseconds
  if (nanoseconds > kMost) return absl::InvalidArgumentError("value out of range");
  auto count = static_cast<int64_t>(std::llround(nanoseconds / 1e6));
  if (count == 0 && nanoseconds > 0) count = 1;
  return milliseconds{negative ? -count : count};
}

void GoFlags::Add(Flag flag) { flags_.push_back(std::move(flag)); }

void GoFlags::Add(std::string name, std::string* target, std::string usage, std::string type) {
  Add({.name = std::move(name),
       .type = std::move(type),
       .shown = *target,
       .usage = std::move(usage),
       .set = [target](std::string_view text) {
         *target = text;
         return absl::OkStatus();
       }});
}

void GoFlags::Add(std::string name, bool* target, std::string usage) {
  Add({.name = std::move(name),
       .type = "",
       .shown = *target ? "true" : "",
       .usage = std::move(usage),
       .set = Setter(target, ParseGoBool)});
}

void GoFlags::Add(std::string name, int64_t* target, std::string usage) {
  Add({.name = std::move(name),
       .type = "int",
       .shown = absl::StrCat(*target),
       .usage = std::move(usage),
       .set = Setter(target, ParseGoInt)});
}

void GoFlags::Add(std::string name, double* target, std::string usage) {
  Add({.name = std::move(name),
       .type = "float",
       .shown = absl::StrCat(*target),
       .usage = std::move(usage),
       .set = Setter(target, ParseGoFloat)});
}

void GoFlags::Add(std::string name, milliseconds* target, std::string usage) {
  Add({.name = std::move(name),
       .type = "duration",
       .shown = Text(*target),
       .usage = std::move(usage),
       .set = Setter(target, ParseGoDuration)});
}

const GoFlags::Flag* GoFlags::Find(std::string_view name) const noexcept {
  const auto found = std::find_if(flags_.begin(), flags_.end(),
                                  [name](const Flag& flag) { return flag.name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

absl::StatusOr<GoFlags::Outcome> GoFlags::Parse(std::span<const std::string> arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--") {
      if (i + 1 == arguments.size()) break;
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument: ", arguments[i + 1]));
    }
    if (argument.size() < 2 || argument.front() != '-') {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument: ", arguments[i]));
    }
    std::string_view name = argument.substr(argument.starts_with("--") ? 2 : 1);
    if (name.empty() || name.front() == '-' || name.front() == '=') {
      return absl::InvalidArgumentError(absl::StrCat("bad flag syntax: ", arguments[i]));
    }
    std::optional<std::string_view> value;
    if (const size_t equals = name.find('='); equals != std::string_view::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const Flag* const flag = Find(name);
    if (flag == nullptr) {
      if (name == "help" || name == "h") return Outcome::kHelp;
      return absl::InvalidArgumentError(
          absl::StrCat("flag provided but not defined: -", AbslView(name)));
    }
    if (!value.has_value() && flag->type.empty()) value = "true";
    if (!value.has_value()) {
      if (++i == arguments.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("flag needs an argument: -", AbslView(name)));
      }
      value = arguments[i];
    }
    if (const absl::Status status = flag->set(*value); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("invalid value \"", AbslView(*value),
                                                     "\" for flag -", AbslView(name), ": ",
                                                     status.message()));
    }
  }
  return Outcome::kRun;
}

std::string GoFlags::Usage() const {
  std::vector<const Flag*> sorted;
  sorted.reserve(flags_.size());
  for (const Flag& flag : flags_) sorted.push_back(&flag);
  std::sort(sorted.begin(), sorted.end(),
            [](const Flag* a, const Flag* b) { return a->name < b->name; });
  std::string text;
  for (const Flag* const flag : sorted) {
    absl::StrAppend(&text, "  --", flag->name, flag->type.empty() ? "" : " ", flag->type,
                    "\n        ", flag->usage);
    if (!flag->shown.empty()) absl::StrAppend(&text, " (default ", flag->shown, ")");
    text += "\n";
  }
  return text;
}

}  // namespace cbt::cli
