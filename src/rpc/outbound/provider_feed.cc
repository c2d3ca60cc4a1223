#include "rpc/outbound/provider_feed.h"

#include <utility>

#include "rpc/contract/status.h"

namespace cbt::rpc {
namespace {

// How long a task may work before other streams get a turn.
constexpr std::chrono::milliseconds kTimeSlice{20};

}  // namespace

ProviderFeed::ProviderFeed(Executor& executor, std::unique_ptr<MessageProducer> producer,
                           std::shared_ptr<MessageSink> sink, std::stop_token stop)
    : executor_(executor),
      stop_(std::move(stop)),
      producer_(std::move(producer)),
      sink_(std::move(sink)) {}

void ProviderFeed::Resume() {
  try {
    executor_.Schedule([self = shared_from_this()] { self->Produce(); });
  } catch (...) {
    // No task runs, and none ever would.
    End({.status = OutOfMemory()});
  }
}

void ProviderFeed::Close() {
  try {
    executor_.Schedule([self = shared_from_this()] { self->LetGo(); });
  } catch (...) {
    LetGo();
  }
}

void ProviderFeed::LetGo() {
  producer_.reset();
  // May be the last reference to the stream, which holds its slot.
  sink_.reset();
}

void ProviderFeed::End(Ending ending) {
  if (sink_ == nullptr) return;  // End() itself threw
  producer_.reset();
  // May be the last reference to the stream, which holds its slot.
  const std::shared_ptr<MessageSink> sink = std::move(sink_);
  sink->Complete(std::move(ending.status), std::move(ending.trailing), std::move(ending.last));
}

// The outermost frame of a task, which must not throw.
void ProviderFeed::Produce() {
  std::optional<Ending> ending;
  try {
    ending = Work();
  } catch (...) {
    // A message or the proof may have been lost.
    ending = {.status = OutOfMemory()};
  }
  if (ending.has_value()) End(*std::move(ending));
}

// Everything that throws here does so before the sink answers kPause: after that, this object must
// not be touched, not even to end the stream.
std::optional<ProviderFeed::Ending> ProviderFeed::Work() {
  const MessageProducer::Clock::time_point yield_at = MessageProducer::Clock::now() + kTimeSlice;
  MessageSink::Want want = sink_->Check();
  while (want == MessageSink::Want::kMore) {
    std::optional<OutMessage> message;
    const auto outcome = producer_->Run(stop_, yield_at, *sink_, message);
    if (!outcome.ok()) return Ending{.status = outcome.status()};
    if (*outcome == MessageProducer::Outcome::kComplete) {
      return Ending{.status = absl::OkStatus(),
                    .trailing = producer_->Trailing(),
                    .last = std::move(message)};
    }
    if (message.has_value()) {
      want = sink_->Offer(*std::move(message));
    } else {
      want = sink_->Check();
      if (want == MessageSink::Want::kMore) {
        Resume();
        return std::nullopt;
      }
    }
  }
  if (want == MessageSink::Want::kNothing) LetGo();
  return std::nullopt;
}

}  // namespace cbt::rpc
