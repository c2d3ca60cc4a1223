#include "rpc/server/send_budget.h"

#include <algorithm>

#include "cbt/units.h"

namespace cbt::rpc {
namespace {

// A message that takes longer has a slow reader, or one that does not read.
constexpr std::chrono::milliseconds kPromptly{250};

// Bytes that may be queued for a reader that is unknown or slow.
constexpr size_t kLeastAhead = 4 * kKiB;

// Bytes taken by the transport prove nothing until they far exceed its windows (64 KiB at first).
// After that, a fraction of them may be queued.
constexpr size_t kTakenProves = 256 * kKiB;
constexpr size_t kTakenForAhead = 4;

// Overhead of a message in bytes, here and in the transport.
constexpr size_t kMessageCost = 400;

}  // namespace

size_t SendBudget::Ahead() const noexcept {
  const size_t ahead =
      taken_promptly_ < kTakenProves ? kLeastAhead : taken_promptly_ / kTakenForAhead;
  return std::min(bytes_, ahead);
}

void SendBudget::Made(size_t length) noexcept {
  ++waiting_;
  bytes_waiting_ += length + kMessageCost;
}

void SendBudget::Taken(size_t length, std::chrono::steady_clock::duration took) noexcept {
  --waiting_;
  bytes_waiting_ -= length + kMessageCost;
  taken_promptly_ = took <= kPromptly ? taken_promptly_ + length : 0;
}

}  // namespace cbt::rpc
