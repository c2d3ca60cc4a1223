#include "cli/output/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <utility>

#include "cli/support/numbers.h"

namespace cbt::cli {
namespace {

constexpr std::chrono::milliseconds kInterval(100);
constexpr size_t kBarCells = 30;

void WriteToTerminal(std::string_view text) {
  // Failing to draw a bar is not an error.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

// A short task is over before the first interval and never shows a bar.
Progress::Progress(std::string label, uint64_t total, uint64_t done)
    : label_(std::move(label)),
      total_(total),
      first_(done),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      drawn_(start_) {}

void Progress::Update(uint64_t done) {
  if (!terminal_) return;
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < kInterval) return;
  drawn_ = now;
  const double part =
      total_ == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done - std::min(first_, done)) / seconds;
  std::string line = "\r" + label_ + " [";
  const auto full = static_cast<size_t>(part * static_cast<double>(kBarCells));
  line.append(full, '#').append(kBarCells - full, '-');
  std::array<char, 16> percent{};
  std::snprintf(percent.data(), percent.size(), "] %5.1f %%  ", part * 100);
  // Holes pass at any speed, and converting more than uint64_t holds is undefined.
  line += percent.data() + HumanSize(static_cast<uint64_t>(std::min(rate, 1e18))) + "/s\x1b[K";
  WriteToTerminal(line);
  visible_ = true;
}

void Progress::Clear() {
  if (!visible_) return;
  WriteToTerminal("\r\x1b[K");
  visible_ = false;
}

}  // namespace cbt::cli
