// A pause that a stop ends.
#ifndef CBT_BASE_STOP_WAIT_H_
#define CBT_BASE_STOP_WAIT_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace cbt {

// Waits for `time`, or until a stop is requested: false then.
inline bool WaitUnlessStopped(const std::stop_token& stop, std::chrono::nanoseconds time) {
  std::mutex mutex;
  std::condition_variable_any never;
  // cppcheck-suppress localMutex  // nothing is shared, but wait_for() takes a lock
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace cbt

#endif  // CBT_BASE_STOP_WAIT_H_
