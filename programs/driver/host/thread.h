// Threads of a process that must not end because one of them can't be started.
#ifndef CBT_PROGRAMS_DRIVER_HOST_THREAD_H_
#define CBT_PROGRAMS_DRIVER_HOST_THREAD_H_

#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"

namespace cbt::driver {

// Errors: RESOURCE_EXHAUSTED if the system gives no more; `thread` is as before then.
template <typename Body>
absl::Status StartThread(std::thread& thread, Body body) {
  try {
    thread = std::thread(std::move(body));
    return absl::OkStatus();
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError(
        "no thread can be started: raise the limit of processes of the volume host (of its Pod: "
        "the kubelet's podPidsLimit)");
  }
}

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_THREAD_H_
