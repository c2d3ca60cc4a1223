#include "map/tracker/pin_table.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <queue>
#include <thread>
#include <tuple>
#include <vector>

namespace cbt {
namespace internal {

thread_local constinit size_t thread_number_and_one = 0;

}  // namespace internal

namespace {

// The thread sanitizer knows nothing of barriers that the kernel makes.
#if defined(__SANITIZE_THREAD__)
constexpr bool kMayUseMembarrier = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kMayUseMembarrier = false;
#else
constexpr bool kMayUseMembarrier = true;
#endif
#else
constexpr bool kMayUseMembarrier = true;
#endif

bool Membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

// A barrier in every thread of the process, which was announced: what makes plain stores enough for
// writers. That it fails all the same is next to impossible (a process that was restored from an
// image may have to announce it again; a filter of system calls may have come since). Going on
// would lose writes without a word.
void ForceBarrier() noexcept {
  if (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  if (Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
      Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    return;
  }
  if (Membarrier(MEMBARRIER_CMD_GLOBAL)) return;
  std::ignore = std::fputs("cbt: membarrier() stopped working, writes could be missed\n", stderr);
  std::abort();
}

// A process announces once that it will ask for barriers.
bool CanUseMembarrier() noexcept {
  static const bool can =
      kMayUseMembarrier && Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return can;
}

// The numbers of threads that have ended, the smallest first: after hundreds of threads, too, those
// that come have places of their own. Never destroyed: threads may outlive what is static.
struct Numbers {
  std::mutex mutex;
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> free;
  size_t next = 0;
};
Numbers& TheNumbers() {
  // Asks for no memory: this is where threads get their numbers, which can't fail.
  alignas(Numbers) static std::byte memory[sizeof(Numbers)];
  static Numbers* const numbers = ::new (memory) Numbers;
  return *numbers;
}

class Number {
 public:
  Number() {
    Numbers& numbers = TheNumbers();
    const std::lock_guard<std::mutex> lock(numbers.mutex);
    if (numbers.free.empty()) {
      value_ = numbers.next++;
    } else {
      value_ = numbers.free.top();
      numbers.free.pop();
    }
  }
  ~Number() {
    // Whatever else the thread destroys may still announce writes: by the shared counters, because
    // the number is somebody else's from here on.
    internal::thread_number_and_one = SIZE_MAX;
    Numbers& numbers = TheNumbers();
    const std::lock_guard<std::mutex> lock(numbers.mutex);
    try {
      numbers.free.push(value_);
    } catch (const std::bad_alloc&) {
      // It is lost; those that come get larger ones.
    }
  }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  size_t value() const noexcept { return value_; }

 private:
  size_t value_;
};

}  // namespace

namespace internal {

size_t TakeThreadNumber() noexcept {
  thread_local const Number number;
  thread_number_and_one = number.value() + 1;
  return number.value();
}

}  // namespace internal

PinTable::PinTable() : asymmetric_(CanUseMembarrier()) {}

void PinTable::Wait(unsigned parity) const noexcept {
  // Every thread of the process passes a full barrier: what it stored before is seen below, what it
  // loads from now on is new.
  if (asymmetric_) ForceBarrier();
  for (const Owned& owned : owned_) {
    while (owned.parity.load(std::memory_order_seq_cst) == 1 + parity) std::this_thread::yield();
  }
  for (const Shared& shared : shared_) {
    while (shared.pins[parity].load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  }
}

}  // namespace cbt
