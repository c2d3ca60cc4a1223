// What the session manager has done, for its metrics.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_COUNTERS_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace cbt::kube::sessions {

// Since the start of the process. Thread safe.
struct Counters {
  std::atomic<uint64_t> reviews_allowed = 0;
  std::atomic<uint64_t> reviews_denied = 0;
  std::atomic<uint64_t> reviews_failed = 0;  // not understood, or access could not be checked
  std::atomic<uint64_t> sessions_ready = 0;
  std::atomic<uint64_t> sessions_failed = 0;
  std::atomic<uint64_t> retries = 0;  // of a step that the API server did not take
  std::atomic<uint64_t> requests_removed = 0;
  std::atomic<uint64_t> data_removed = 0;
};

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_COUNTERS_H_
