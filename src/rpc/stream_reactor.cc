#include "rpc/stream_reactor.h"

#include <utility>

#include "rpc/status.h"

namespace cbt::rpc {
namespace {

// How long a task may work before other streams get a turn.
constexpr std::chrono::milliseconds kTimeSlice{20};

}  // namespace

StreamReactor::StreamReactor(grpc::CallbackServerContext& context, StreamRegistry& registry,
                             StreamSlot slot, Executor& executor, size_t messages_in_flight,
                             std::unique_ptr<StreamProducer> producer)
    : registry_(registry),
      slot_(std::move(slot)),
      executor_(executor),
      messages_in_flight_(messages_in_flight),
      producer_(std::move(producer)),
      context_(&context) {}

void StreamReactor::Start() {
  std::lock_guard lock(mutex_);
  ScheduleProducer();
}

// Requires the lock, and that no task is there.
void StreamReactor::ScheduleProducer() {
  producing_ = true;
  executor_.Schedule([self = shared_from_this()] { self->Produce(); });
}

bool StreamReactor::HasRoom() const noexcept {
  return ready_.size() + (writing_ ? 1 : 0) < messages_in_flight_;
}

void StreamReactor::Produce() {
  const Clock::time_point yield_at = Clock::now() + kTimeSlice;
  for (;;) {
    bool closed = false;
    {
      std::lock_guard lock(mutex_);
      closed = closed_;
      if (!closed && !HasRoom()) {
        producing_ = false;
        return;
      }
    }
    if (closed) {
      producer_.reset();
      return;
    }
    std::optional<grpc::ByteBuffer> message;
    const auto outcome = producer_->Run(stop_.get_token(), yield_at, message);
    const bool ended = !outcome.ok() || *outcome == StreamProducer::Outcome::kComplete;
    if (ended) producer_.reset();

    std::unique_lock lock(mutex_);
    if (message.has_value()) ready_.push_back(*std::move(message));
    if (ended) {
      produced_ = outcome.status();
      producing_ = false;
    } else if (*outcome == StreamProducer::Outcome::kYield) {
      ScheduleProducer();
    }
    Advance(std::move(lock));
    if (ended || *outcome == StreamProducer::Outcome::kYield) return;
  }
}

// Takes the next step on gRPC's side, if there is one. Calls gRPC without the lock: writing_ and
// closed_ keep everybody else from it meanwhile.
void StreamReactor::Advance(std::unique_lock<std::mutex> lock) {
  if (closed_ || writing_) return;
  const bool sent_all = produced_.has_value() && ready_.empty();
  absl::Status status;
  if (sent_all && produced_->ok() && !broken_) {
    status = absl::OkStatus();
  } else if (forced_.has_value()) {
    status = *forced_;
  } else if (sent_all) {
    status = *produced_;
  } else if (!ready_.empty()) {
    current_ = ready_.front();  // a reference: ByteBuffer can't be moved
    ready_.pop_front();
    writing_ = true;
    handed_over_at_ = Clock::now();
    lock.unlock();
    StartWrite(&current_);
    return;
  } else {
    return;
  }
  closed_ = true;
  handed_over_at_ = Clock::now();
  ready_.clear();
  // Nobody else would destroy the source.
  if (!producing_ && !produced_.has_value()) ScheduleProducer();
  lock.unlock();
  Finish(ToGrpcStatus(status));
}

void StreamReactor::OnWriteDone(bool ok) {
  if (!ok) Break();
  std::unique_lock lock(mutex_);
  writing_ = false;
  current_.Clear();
  // In this order: a stream that is to be closed needs its task for another purpose.
  if (!producing_ && !produced_.has_value() && !forced_.has_value()) ScheduleProducer();
  Advance(std::move(lock));
}

// The client is gone.
void StreamReactor::Break() {
  {
    std::lock_guard lock(mutex_);
    broken_ = true;
    if (!forced_.has_value()) forced_ = absl::CancelledError("the stream was cancelled");
  }
  stop_.request_stop();
}

void StreamReactor::OnCancel() {
  Break();
  Advance(std::unique_lock(mutex_));
}

void StreamReactor::End(absl::Status status) {
  {
    // Before the producer is stopped: what it says then is not how the stream ends.
    std::lock_guard lock(mutex_);
    if (!forced_.has_value()) forced_ = std::move(status);
  }
  // Not under the lock: providers may have callbacks on the token.
  stop_.request_stop();
  Advance(std::unique_lock(mutex_));
}

void StreamReactor::Abort() {
  std::lock_guard lock(mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void StreamReactor::AbortIfStalled(std::chrono::milliseconds timeout) {
  std::lock_guard lock(mutex_);
  if (context_ == nullptr || !(writing_ || closed_)) return;
  if (Clock::now() - handed_over_at_ > timeout) context_->TryCancel();
}

void StreamReactor::OnDone() {
  {
    std::lock_guard lock(mutex_);
    context_ = nullptr;
  }
  registry_.Remove(this);  // may destroy this
}

}  // namespace cbt::rpc
