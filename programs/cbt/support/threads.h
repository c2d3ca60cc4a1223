// The number of threads of a subcommand.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_THREADS_H_
#define CBT_PROGRAMS_CBT_SUPPORT_THREADS_H_

#include <algorithm>
#include <cstddef>
#include <thread>

namespace cbt::cli {

// Enough to keep several reads in flight, few enough that their buffers stay small.
inline size_t WorkerThreads() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 2, 4);
}

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_THREADS_H_
