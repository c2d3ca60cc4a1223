// Which threads work under which state: stored by every write, read only when the state changes,
// about once a day.
#ifndef CBT_MAP_TRACKER_PIN_TABLE_H_
#define CBT_MAP_TRACKER_PIN_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cbt {

namespace internal {
// The number plus 1; 0 while the thread has none. constinit, because every announced write reads
// it.
extern thread_local constinit size_t thread_number_and_one;
size_t TakeThreadNumber() noexcept;
}  // namespace internal

// A number for each live thread, from 0 on; numbers of ended threads are reused.
inline size_t ThreadNumber() noexcept {
  const size_t number = internal::thread_number_and_one;
  return number != 0 ? number - 1 : internal::TakeThreadNumber();
}

// Threads pin the parity of a state while they rely on it. The first kOwned threads have their own
// places. A pin then costs a plain store, if the kernel can order memory for all threads at once
// (membarrier(2)): the rare change of state pays for the ordering, not every pin. Other threads
// share counters.
//
//   a working thread                      the thread that changes the state
//   Pin(parity of the state)              store the new state, sequentially consistent
//   load the state again, likewise        Wait(parity of the old state)
//
// Either the thread sees the new state and unpins, or Wait() sees the pin. The same holds for any
// other store before Pin() that is made through Publish().
class PinTable {
 public:
  PinTable();

  // The argument of Unpin(): the thread's own place, or a counter.
  struct PinOf {
    std::atomic<unsigned>* own = nullptr;
    std::atomic<uint64_t>* shared = nullptr;
  };

  // A nested pin of the same thread, which a signal handler may take, uses a counter: its end must
  // not end the outer one.
  PinOf Pin(unsigned parity) noexcept {
    const size_t number = ThreadNumber();
    if (std::atomic<unsigned>* const place = OwnPlace(); place != nullptr) {
      PinAt(*place, parity);
      return {.own = place};
    }
    std::atomic<uint64_t>& pins = shared_[number % kShared].pins[parity];
    pins.fetch_add(1, std::memory_order_seq_cst);
    return {.shared = &pins};
  }

  static void Unpin(const PinOf& pin) noexcept {
    if (pin.own != nullptr) {
      UnpinAt(*pin.own);
    } else {
      pin.shared->fetch_sub(1, std::memory_order_release);
    }
  }

  template <typename T>
  void Publish(std::atomic<T>& place, T value) const noexcept {
    if (asymmetric_) {
      place.store(value, std::memory_order_release);
    } else {
      place.store(value, std::memory_order_seq_cst);
    }
  }

  // The place of a thread that has its own, for Pin() and Unpin(); null if it has none (yet) or has
  // pinned already.
  std::atomic<unsigned>* OwnPlace() noexcept {
    const size_t number = internal::thread_number_and_one - 1;
    if (number >= kOwned) return nullptr;
    std::atomic<unsigned>& place = owned_[number].parity;
    return place.load(std::memory_order_relaxed) == 0 ? &place : nullptr;
  }
  void PinAt(std::atomic<unsigned>& place, unsigned parity) const noexcept {
    Publish(place, 1 + parity);
    // Keeps the compiler from moving the following load up.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  static void UnpinAt(std::atomic<unsigned>& place) noexcept {
    place.store(0, std::memory_order_release);
  }

  // Returns once no thread works under the parity any more.
  void Wait(unsigned parity) const noexcept;

 private:
  static constexpr size_t kOwned = 256;
  static constexpr size_t kShared = 16;

  struct alignas(64) Owned {
    std::atomic<unsigned> parity{0};  // plus 1; 0: not working
  };
  struct alignas(64) Shared {
    std::array<std::atomic<uint64_t>, 2> pins{};
  };

  const bool asymmetric_;
  std::array<Owned, kOwned> owned_;
  std::array<Shared, kShared> shared_;
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_PIN_TABLE_H_
