// Limits how much is queued for the reader of one stream.
#ifndef CBT_RPC_SERVER_SEND_BUDGET_H_
#define CBT_RPC_SERVER_SEND_BUDGET_H_

#include <chrono>
#include <cstddef>

namespace cbt::rpc {

// Counts the messages that were made but not taken yet, including the one in flight. Little is
// queued for an unknown reader: there may be thousands of slow ones, and each takes memory. The
// limit grows once a reader has taken much without delay, and shrinks again when it hesitates.
//
// Not thread safe. Everything is O(1).
class SendBudget {
 public:
  // At most `messages` are queued, and none is added once `bytes` are queued.
  SendBudget(size_t messages, size_t bytes) noexcept : messages_(messages), bytes_(bytes) {}

  // Whether another message may be made. It may exceed the remaining bytes: otherwise long messages
  // would never be sent.
  bool HasRoom() const noexcept { return waiting_ < messages_ && bytes_waiting_ < Ahead(); }

  // Whether several may be made, so that a paused feed is not woken for each.
  bool HasMuchRoom() const noexcept {
    return waiting_ * 2 <= messages_ && bytes_waiting_ * 2 <= Ahead();
  }

  // Records a queued message of `length` bytes.
  void Made(size_t length) noexcept;

  // Records that the transport has taken a message of `length` bytes within `took`.
  void Taken(size_t length, std::chrono::steady_clock::duration took) noexcept;

 private:
  size_t Ahead() const noexcept;

  const size_t messages_;
  const size_t bytes_;
  size_t waiting_ = 0;
  size_t bytes_waiting_ = 0;   // including the overhead of each message
  size_t taken_promptly_ = 0;  // bytes since the last slow message
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_SEND_BUDGET_H_
