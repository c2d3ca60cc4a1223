#include <cstdint>
#include <cstdio>
#include <optional>

#include "absl/status/status.h"
#include "cbt/kube/object.h"

namespace cbt::kube {
namespace {

// Takes digits and separators from the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // Exactly `count` digits.
  std::optional<int> Digits(size_t count) {
    if (text_.size() < count) return std::nullopt;
    int value = 0;
    for (const char c : text_.substr(0, count)) {
      if (c < '0' || c > '9') return std::nullopt;
      value = value * 10 + (c - '0');
    }
    text_.remove_prefix(count);
    return value;
  }
  bool Take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  char Next() {
    if (text_.empty()) return '\0';
    const char c = text_.front();
    text_.remove_prefix(1);
    return c;
  }
  bool AtEnd() const noexcept { return text_.empty(); }

 private:
  std::string_view text_;
};

std::optional<std::chrono::seconds> ClockTime(Scanner& scanner) {
  const std::optional<int> hour = scanner.Digits(2);
  if (!hour || !scanner.Take(':')) return std::nullopt;
  const std::optional<int> minute = scanner.Digits(2);
  if (!minute || *hour > 23 || *minute > 59) return std::nullopt;
  return std::chrono::hours(*hour) + std::chrono::minutes(*minute);
}

std::optional<Time> Parse(std::string_view text) {
  Scanner scanner(text);
  const std::optional<int> year = scanner.Digits(4);
  if (!year || !scanner.Take('-')) return std::nullopt;
  const std::optional<int> month = scanner.Digits(2);
  if (!month || !scanner.Take('-')) return std::nullopt;
  const std::optional<int> day = scanner.Digits(2);
  if (!day || !(scanner.Take('T') || scanner.Take('t'))) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  const std::optional<std::chrono::seconds> clock = ClockTime(scanner);
  if (!clock || !scanner.Take(':')) return std::nullopt;
  const std::optional<int> second = scanner.Digits(2);
  if (!second || *second > 60) return std::nullopt;
  std::chrono::microseconds fraction{0};
  if (scanner.Take('.')) {
    int digits = 0;
    std::chrono::microseconds unit{100'000};
    while (const std::optional<int> digit = scanner.Digits(1)) {
      fraction += *digit * unit;
      unit /= 10;
      ++digits;
    }
    if (digits == 0) return std::nullopt;
  }
  std::chrono::seconds offset{0};
  const char zone = scanner.Next();
  if (zone == '+' || zone == '-') {
    const std::optional<std::chrono::seconds> from_utc = ClockTime(scanner);
    if (!from_utc) return std::nullopt;
    offset = zone == '+' ? *from_utc : -*from_utc;
  } else if (zone != 'Z' && zone != 'z') {
    return std::nullopt;
  }
  if (!scanner.AtEnd()) return std::nullopt;
  return std::chrono::sys_days(date) + *clock + std::chrono::seconds(*second) + fraction - offset;
}

std::string Format(Time time, bool fraction) {
  const auto days = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss clock(time - days);
  char text[64];
  int length = std::snprintf(
      text, sizeof(text), "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()));
  std::string result(text, static_cast<size_t>(length));
  if (fraction) {
    length =
        std::snprintf(text, sizeof(text), ".%06d", static_cast<int>(clock.subseconds().count()));
    result.append(text, static_cast<size_t>(length));
  }
  return result + "Z";
}

}  // namespace

absl::StatusOr<Time> ParseTime(std::string_view text) {
  const std::optional<Time> time = Parse(text);
  if (!time) return absl::InvalidArgumentError("expected a time in the form of RFC 3339");
  return *time;
}

std::string FormatTime(Time time) { return Format(time, false); }

std::string FormatMicroTime(Time time) { return Format(time, true); }

}  // namespace cbt::kube
