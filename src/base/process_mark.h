// Distinguishes a process from its forked children.
#ifndef CBT_BASE_PROCESS_MARK_H_
#define CBT_BASE_PROCESS_MARK_H_

#include <atomic>
#include <cstdint>

namespace cbt {

// Remembers the process that created the object. In a forked child, where the object is a copy,
// IsOurs() is always false. Costs one load.
class ProcessMark {
 public:
  ProcessMark() noexcept;
  bool IsOurs() const noexcept { return current_->load(std::memory_order_relaxed) == made_in_; }

 private:
  const std::atomic<uint64_t>* current_;
  uint64_t made_in_;
};

}  // namespace cbt

#endif  // CBT_BASE_PROCESS_MARK_H_
