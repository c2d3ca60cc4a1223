// A progress bar for interactive use.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_PROGRESS_H_
#define CBT_PROGRAMS_CBT_OUTPUT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace cbt::cli {

// A bar on stderr, with the rate and the time that is left, if that is a terminal and the user
// wants one; nothing otherwise. It is removed when the command is interrupted (SIGINT). Belongs to
// one thread at a time.
class Progress {
 public:
  // `label` describes the work, `total` (bytes) is its end; `done` is where it starts.
  Progress(std::string label, uint64_t total, uint64_t done = 0);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap enough for every batch: draws at most ten times a second.
  void Update(uint64_t done);

  // Removes the bar, so that something else can be printed; the next Update() may redraw it.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  const std::string label_;
  const uint64_t total_;
  const uint64_t first_;
  const bool drawn_at_all_;
  const Clock::time_point start_;
  Clock::time_point drawn_;
  bool visible_ = false;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_PROGRESS_H_
