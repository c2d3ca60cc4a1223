// How much may wait for the reader of one stream.
#ifndef CBT_RPC_OUTBOUND_SEND_BUDGET_H_
#define CBT_RPC_OUTBOUND_SEND_BUDGET_H_

#include <chrono>
#include <cstddef>

namespace cbt::rpc {

// Counts the messages that are made and not taken yet, the one on its way among them. Little may
// wait for a reader of which nothing is known: there may be thousands that read slowly, and all of
// it is memory. More may when it has taken much without hesitation, and little again as soon as it
// hesitates.
//
// Not for several threads at once. Everything is O(1).
class SendBudget {
 public:
  // Never more than `messages`, and none that begins when `bytes` wait.
  SendBudget(size_t messages, size_t bytes) noexcept : messages_(messages), bytes_(bytes) {}

  // Whether one more message may be made. A message may be longer than what is left: else long ones
  // would never go.
  bool HasRoom() const noexcept { return waiting_ < messages_ && bytes_waiting_ < Ahead(); }

  // Whether several may, so that who paused is woken for several and not for each.
  bool HasMuchRoom() const noexcept {
    return waiting_ * 2 <= messages_ && bytes_waiting_ * 2 <= Ahead();
  }

  // A message of so many bytes waits.
  void Made(size_t length) noexcept;

  // The transport has taken a message of so many bytes, and that long for it.
  void Taken(size_t length, std::chrono::steady_clock::duration took) noexcept;

 private:
  size_t Ahead() const noexcept;

  const size_t messages_;
  const size_t bytes_;
  size_t waiting_ = 0;
  size_t bytes_waiting_ = 0;   // and what each message costs beside them
  size_t taken_promptly_ = 0;  // bytes since the last message that took long
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_OUTBOUND_SEND_BUDGET_H_
