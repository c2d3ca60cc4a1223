// A loop whose steps run in several threads.
#ifndef CBT_REPOSITORY_PARALLEL_H_
#define CBT_REPOSITORY_PARALLEL_H_

#include <cstddef>
#include <functional>
#include <stop_token>

#include "absl/status/status.h"

namespace cbt::repository {

// Calls `step(i)` for each i below `count`, in `threads` (>= 1) threads at a time and roughly in
// order, and returns once none runs any more. After an error, or once a stop is requested, no
// further step starts.
// Returns: the error of the lowest step that failed; CANCELLED.
absl::Status ParallelFor(size_t count, size_t threads, const std::stop_token& stop,
                         const std::function<absl::Status(size_t)>& step);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_PARALLEL_H_
