// Tells a process from the copies of it that fork() makes.
#ifndef CBT_MAP_FOLDER_PROCESS_MARK_H_
#define CBT_MAP_FOLDER_PROCESS_MARK_H_

#include <atomic>
#include <cstdint>

namespace cbt {

// The process that made the object, as seen when it is asked later: in a copy of that process,
// where the object is a copy too, IsOurs() is false for ever. Costs a load.
class ProcessMark {
 public:
  ProcessMark() noexcept;
  bool IsOurs() const noexcept { return current_->load(std::memory_order_relaxed) == made_in_; }

 private:
  const std::atomic<uint64_t>* current_;
  uint64_t made_in_;
};

}  // namespace cbt

#endif  // CBT_MAP_FOLDER_PROCESS_MARK_H_
