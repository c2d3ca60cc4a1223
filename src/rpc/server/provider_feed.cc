#include "rpc/server/provider_feed.h"

#include <utility>

#include "rpc/contract/status.h"

namespace cbt::rpc {
namespace {

// How long a task may work before other streams get a turn, and how long a thread of the transport.
constexpr std::chrono::milliseconds kTimeSlice{20};
constexpr std::chrono::microseconds kInlineTimeSlice{500};

}  // namespace

ProviderFeed::ProviderFeed(Executor& executor, std::unique_ptr<MessageProducer> producer,
                           std::shared_ptr<MessageSink> sink, std::stop_token stop)
    : executor_(executor),
      stop_(std::move(stop)),
      producer_(std::move(producer)),
      sink_(std::move(sink)) {}

// The producer belongs to this thread: no other one works.
void ProviderFeed::Resume() { producer_->never_blocks() ? ProduceHere() : Schedule(); }

void ProviderFeed::Schedule() {
  try {
    executor_.Schedule([self = shared_from_this()] { self->Produce(); });
  } catch (...) {
    // No task runs, and none ever would.
    End({.status = OutOfMemory()});
  }
}

void ProviderFeed::Close() {
  try {
    executor_.Schedule([self = shared_from_this()] { self->Detach(); });
  } catch (...) {
    Detach();
  }
}

void ProviderFeed::Compact() noexcept { producer_->Compact(); }

void ProviderFeed::Detach() {
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
    ending = Work(kTimeSlice);
  } catch (...) {
    // A message or the proof may have been lost.
    ending = {.status = OutOfMemory()};
  }
  if (ending.has_value()) End(*std::move(ending));
}

// As Produce(), in a thread of the transport.
void ProviderFeed::ProduceHere() {
  std::shared_ptr<Ending> ending;
  try {
    if (auto ended = Work(kInlineTimeSlice); ended.has_value()) {
      ending = std::make_shared<Ending>(*std::move(ended));
      executor_.Schedule([self = shared_from_this(), ending] { self->End(std::move(*ending)); });
    }
  } catch (...) {
    // A message or the proof may have been lost, or no task runs that would end the stream.
    End(ending != nullptr ? std::move(*ending) : Ending{.status = OutOfMemory()});
  }
}

// Everything that throws here does so before the sink answers kPause: after that, this object must
// not be touched, not even to end the stream.
std::optional<ProviderFeed::Ending> ProviderFeed::Work(MessageProducer::Clock::duration slice) {
  const MessageProducer::Clock::time_point yield_at = MessageProducer::Clock::now() + slice;
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
    const bool yields = !message.has_value();
    want = yields ? sink_->Check() : sink_->Offer(*std::move(message));
    if (yields && want == MessageSink::Want::kMore) {
      Schedule();
      return std::nullopt;
    }
  }
  if (want == MessageSink::Want::kNothing) Close();
  return std::nullopt;
}

}  // namespace cbt::rpc
