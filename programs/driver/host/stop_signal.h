// A signal that stops several threads.
#ifndef CBT_PROGRAMS_DRIVER_HOST_STOP_SIGNAL_H_
#define CBT_PROGRAMS_DRIVER_HOST_STOP_SIGNAL_H_

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <chrono>
#include <cstdint>

#include "base/descriptor.h"
#include "base/file_io.h"

namespace cbt::driver {

// Set once, and seen by every thread that waits. Thread safe.
class StopSignal {
 public:
  StopSignal() noexcept : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void Set() noexcept {
    const uint64_t one = 1;
    static_cast<void>(Retry([&] { return ::write(event_.number(), &one, sizeof(one)); }));
  }
  bool IsSet() const noexcept { return WaitFor(std::chrono::milliseconds(0)); }
  // True once it is set, false after `time`.
  bool WaitFor(std::chrono::milliseconds time) const noexcept {
    pollfd wait = {.fd = event_.number(), .events = POLLIN, .revents = 0};
    return Retry([&] { return ::poll(&wait, 1, static_cast<int>(time.count())); }) > 0;
  }
  // Waits until `descriptor` can be read, or has failed; false once the signal is set.
  bool WaitUntilReadable(int descriptor) const noexcept {
    std::array<pollfd, 2> waits = {pollfd{.fd = descriptor, .events = POLLIN, .revents = 0},
                                   pollfd{.fd = event_.number(), .events = POLLIN, .revents = 0}};
    Retry([&] { return ::poll(waits.data(), waits.size(), -1); });
    return waits[1].revents == 0;
  }

 private:
  const OwnedDescriptor event_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_STOP_SIGNAL_H_
