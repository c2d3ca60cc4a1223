// Lets writes pass, and holds them for the moment of a snapshot.
#ifndef CBT_PROGRAMS_VOLUME_WRITE_GATE_H_
#define CBT_PROGRAMS_VOLUME_WRITE_GATE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace cbt::volume {

// Thread-safe. A write that passes costs two atomic additions and a load. What a thread did while
// it held the gate is visible to writes that pass later, and the other way round.
class WriteGate {
 public:
  // Waits while the gate is held. False if it is shut, otherwise Leave() must follow.
  bool Enter() {
    for (;;) {
      inside_.fetch_add(1, std::memory_order_seq_cst);
      const State state = state_.load(std::memory_order_seq_cst);
      if (state == State::kOpen) return true;
      Leave();
      if (state == State::kShut) return false;
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return state_.load() != State::kHeld; });
    }
  }

  void Leave() {
    if (inside_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
        state_.load(std::memory_order_seq_cst) != State::kOpen) {
      const std::lock_guard<std::mutex> lock(mutex_);
      changed_.notify_all();
    }
  }

  // Returns once no write is inside. The gate is held until each Hold() has had its Open(); it may
  // be held several times at once, by any threads.
  void Hold() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++holds_;
    if (state_.load() != State::kShut) Set(State::kHeld, lock);
  }
  // Requires: a Hold() without its Open(). A gate that was shut meanwhile stays so.
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--holds_ > 0 || state_.load() == State::kShut) return;
    state_.store(State::kOpen, std::memory_order_seq_cst);
    changed_.notify_all();
  }
  // For good. Returns once no write is inside.
  void Shut() {
    std::unique_lock<std::mutex> lock(mutex_);
    Set(State::kShut, lock);
  }

  bool held() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return holds_ > 0;
  }

 private:
  enum class State : uint8_t { kOpen, kHeld, kShut };

  void Set(State state, std::unique_lock<std::mutex>& lock) {
    state_.store(state, std::memory_order_seq_cst);
    changed_.notify_all();
    changed_.wait(lock, [this] { return inside_.load(std::memory_order_seq_cst) == 0; });
  }

  std::atomic<uint64_t> inside_{0};
  std::atomic<State> state_{State::kOpen};
  mutable std::mutex mutex_;
  size_t holds_ = 0;  // under mutex_
  std::condition_variable changed_;
};

// Is inside the gate for a scope.
class GatePass {
 public:
  explicit GatePass(WriteGate& gate) : gate_(gate), inside_(gate.Enter()) {}
  ~GatePass() {
    if (inside_) gate_.Leave();
  }
  GatePass(const GatePass&) = delete;
  GatePass& operator=(const GatePass&) = delete;

  // False if the gate is shut.
  bool inside() const noexcept { return inside_; }

 private:
  WriteGate& gate_;
  const bool inside_;
};

// Holds the gate for a scope.
class GateHold {
 public:
  explicit GateHold(WriteGate& gate) : gate_(gate) { gate_.Hold(); }
  ~GateHold() { gate_.Open(); }
  GateHold(const GateHold&) = delete;
  GateHold& operator=(const GateHold&) = delete;

 private:
  WriteGate& gate_;
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_WRITE_GATE_H_
