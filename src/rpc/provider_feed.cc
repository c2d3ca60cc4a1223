#include "rpc/provider_feed.h"

#include <optional>
#include <utility>

namespace cbt::rpc {
namespace {

// How long a task may work before other streams get a turn.
constexpr std::chrono::milliseconds kTimeSlice{20};

}  // namespace

ProviderFeed::ProviderFeed(Executor& executor, std::unique_ptr<StreamProducer> producer,
                           std::shared_ptr<MessageSink> sink, std::stop_token stop)
    : executor_(executor),
      stop_(std::move(stop)),
      producer_(std::move(producer)),
      sink_(std::move(sink)) {}

void ProviderFeed::Resume() {
  executor_.Schedule([self = shared_from_this()] { self->Produce(); });
}

void ProviderFeed::Close() {
  executor_.Schedule([self = shared_from_this()] { self->LetGo(); });
}

void ProviderFeed::LetGo() {
  producer_.reset();
  // The last reference may be the one that the stream's slot hangs on.
  sink_.reset();
}

void ProviderFeed::Produce() {
  const StreamProducer::Clock::time_point yield_at = StreamProducer::Clock::now() + kTimeSlice;
  MessageSink::Want want = sink_->Check();
  while (want == MessageSink::Want::kMore) {
    std::optional<OutMessage> message;
    const auto outcome = producer_->Run(stop_, yield_at, *sink_, message);
    if (!outcome.ok() || *outcome == StreamProducer::Outcome::kComplete) {
      Metadata trailing;
      if (outcome.ok()) trailing = producer_->Trailing();
      producer_.reset();
      // May be the last reference that the stream's slot hangs on.
      const std::shared_ptr<MessageSink> sink = std::move(sink_);
      sink->Complete(outcome.status(), std::move(trailing), std::move(message));
      return;
    }
    if (message.has_value()) {
      want = sink_->Offer(*std::move(message));
    } else {
      want = sink_->Check();
      if (want == MessageSink::Want::kMore) {
        Resume();
        return;
      }
    }
  }
  // After kPause nothing of this may be touched any more.
  if (want == MessageSink::Want::kNothing) LetGo();
}

}  // namespace cbt::rpc
