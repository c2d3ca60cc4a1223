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

// The thread sanitizer doesn't know about barriers issued by the kernel.
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

// A barrier in every thread of the process, so that plain stores suffice for writers. It was
// registered, so failure is next to impossible (a process restored from an image may have to
// register again; a system call filter may have been added). Continuing would silently lose writes.
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

// A process registers once for barriers.
bool CanUseMembarrier() noexcept {
  static const bool can =
      kMayUseMembarrier && Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return can;
}

// The numbers of ended threads, smallest first, so that new threads get their own places even after
// hundreds of others. Never destroyed: threads may outlive static objects.
struct Numbers {
  std::mutex mutex;
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> free;
  size_t next = 0;
};
Numbers& TheNumbers() {
  // Allocates nothing: taking a number must not fail.
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
    // Later destructors of this thread may still announce writes: through the shared counters,
    // because another thread may get the number now.
    internal::thread_number_and_one = SIZE_MAX;
    Numbers& numbers = TheNumbers();
    const std::lock_guard<std::mutex> lock(numbers.mutex);
    try {
      numbers.free.push(value_);
    } catch (const std::bad_alloc&) {
      // The number is lost; new threads get larger ones.
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
  // Every thread of the process executes a full barrier: its earlier stores are visible below, its
  // later loads see the new state.
  if (asymmetric_) ForceBarrier();
  for (const Owned& owned : owned_) {
    while (owned.parity.load(std::memory_order_seq_cst) == 1 + parity) std::this_thread::yield();
  }
  for (const Shared& shared : shared_) {
    while (shared.pins[parity].load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  }
}

}  // namespace cbt
