#include "programs/cbt/output/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <utility>

#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"
#include "programs/cbt/support/terminal.h"

namespace cbt::cli {
namespace {

constexpr std::chrono::milliseconds kInterval(100);
constexpr size_t kBarCells = 30;
constexpr std::string_view kClearLine = "\r\x1b[K";

void WriteToTerminal(std::string_view text) {
  // Failing to draw a bar is not an error.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

// "0:07", "12:00", "3:05:09".
std::string TimeText(double seconds) {
  constexpr double kMost = 100 * 3600;
  if (seconds >= kMost) return "over 100 hours";
  const auto whole = static_cast<unsigned>(seconds + 0.5);
  const unsigned hours = whole / 3600;
  std::array<char, 32> text{};
  if (hours > 0) {
    std::snprintf(text.data(), text.size(), "%u:%02u:%02u", hours, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%u:%02u", whole / 60, whole % 60);
  }
  return text.data();
}

// A line that wraps can't be redrawn. Asked each time: terminals change their size.
size_t BarCells(size_t label) {
  constexpr size_t kOthers = 42;  // brackets, percent, rate and time
  const size_t columns = TerminalColumns(STDERR_FILENO).value_or(kBarCells + label + kOthers);
  return columns > label + kOthers ? std::min(kBarCells, columns - label - kOthers) : 0;
}

volatile std::sig_atomic_t bar_visible = 0;
struct sigaction after_clearing {};

extern "C" void ClearAndPassOn(int number) {
  if (bar_visible != 0) WriteToTerminal(kClearLine);
  // Now the original action happens: the default one, or the removal of a temporary file.
  sigaction(number, &after_clearing, nullptr);
  raise(number);
}

void ClearWhenInterrupted() {
  static bool installed = false;
  if (std::exchange(installed, true)) return;
  // A signal ignored at start (nohup) stays ignored.
  if (sigaction(SIGINT, nullptr, &after_clearing) != 0 || after_clearing.sa_handler == SIG_IGN) {
    return;
  }
  struct sigaction action {};
  action.sa_handler = ClearAndPassOn;
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

// A short task is over before the first interval and never shows a bar.
Progress::Progress(std::string label, uint64_t total, uint64_t done)
    : label_(std::move(label)),
      total_(total),
      first_(done),
      drawn_at_all_(!CurrentVerbosity().quiet && !CurrentVerbosity().no_progress &&
                    isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      drawn_(start_) {}

void Progress::Update(uint64_t done) {
  if (!drawn_at_all_) return;
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < kInterval) return;
  drawn_ = now;
  const double part =
      total_ == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done - std::min(first_, done)) / seconds;
  std::string line = "\r" + label_ + " [";
  const size_t cells = BarCells(label_.size());
  const auto full = static_cast<size_t>(part * static_cast<double>(cells));
  line.append(full, '#').append(cells - full, '-');
  std::array<char, 16> percent{};
  std::snprintf(percent.data(), percent.size(), "] %5.1f %%  ", part * 100);
  // Holes pass at any speed, and converting more than uint64_t holds is undefined.
  line += percent.data() + HumanSize(static_cast<uint64_t>(std::min(rate, 1e18))) + "/s";
  const auto left = static_cast<double>(total_ - std::min(total_, done));
  if (rate > 0 && left > 0) line += "  ETA " + TimeText(left / rate);
  line += "\x1b[K";
  if (!visible_) ClearWhenInterrupted();
  bar_visible = 1;
  WriteToTerminal(line);
  visible_ = true;
}

void Progress::Clear() {
  if (!visible_) return;
  WriteToTerminal(kClearLine);
  bar_visible = 0;
  visible_ = false;
}

}  // namespace cbt::cli
